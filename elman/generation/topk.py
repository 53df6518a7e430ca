"""Two-stage top-k over a large vocabulary: first the groups with the largest maxima, then the elements in them."""

import torch
from torch import Tensor

GROUP_SIZE = 32  # elements per group
MIN_SIZE_FOR_GROUPS = 8 * GROUP_SIZE  # smaller inputs take one plain top-k


def topk_of_sums(values: Tensor, offsets: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of values (rows, parts, many) + offsets (rows, parts) in each row, largest first.

    Returns the sums and their indices into parts · many. NaN counts as the largest. The `count` groups with the largest
    maxima contain the top `count` elements, so most sums are never computed.
    """
    many = values.shape[2]
    count = min(count, values.shape[1] * many)
    if many < MIN_SIZE_FOR_GROUPS:
        return (values + offsets.unsqueeze(2)).flatten(1).topk(count, dim=1)
    whole = many - many % GROUP_SIZE
    maxima = values[:, :, :whole].unflatten(2, (-1, GROUP_SIZE)).amax(3)
    if whole < many:
        maxima = torch.cat([maxima, values[:, :, whole:].amax(2, keepdim=True)], 2)
    groups = maxima.shape[2]
    best = (maxima + offsets.unsqueeze(2)).flatten(1).topk(min(count, values.shape[1] * groups), dim=1, sorted=False)[1]
    part, group = best // groups, best % groups
    within = group.unsqueeze(2) * GROUP_SIZE + torch.arange(GROUP_SIZE, device=values.device)
    places = (part.unsqueeze(2) * many + within.clamp(max=many - 1)).flatten(1)
    sums = values.flatten(1).gather(1, places).unflatten(1, (-1, GROUP_SIZE)) + offsets.gather(1, part).unsqueeze(2)
    found, order = sums.masked_fill(within >= many, -torch.inf).flatten(1).topk(count, dim=1)
    return found, places.gather(1, order)
