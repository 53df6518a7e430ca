"""The largest of very many numbers, in two stages: groups by their maxima first, then what is in the best groups."""

import torch
from torch import Tensor

GROUP = 32  # numbers whose maximum is taken at first
FEW = 8 * GROUP  # below this all are compared at once


def topk_of_sums(values: Tensor, offsets: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of values (rows, parts, many) + offsets (rows, parts) in each row, the largest first.

    Gives the sums and their places in a row of parts · many. A number that is not one counts as the largest. As many
    groups as numbers are wanted hold all of them: no other has a maximum as large. So most sums are never made.
    """
    many = values.shape[2]
    count = min(count, values.shape[1] * many)
    if many < FEW:
        return (values + offsets.unsqueeze(2)).flatten(1).topk(count, dim=1)
    whole = many - many % GROUP
    maxima = values[:, :, :whole].unflatten(2, (-1, GROUP)).amax(3)
    if whole < many:
        maxima = torch.cat([maxima, values[:, :, whole:].amax(2, keepdim=True)], 2)
    groups = maxima.shape[2]
    best = (maxima + offsets.unsqueeze(2)).flatten(1).topk(min(count, values.shape[1] * groups), dim=1, sorted=False)[1]
    part, group = best // groups, best % groups
    within = group.unsqueeze(2) * GROUP + torch.arange(GROUP, device=values.device)
    places = (part.unsqueeze(2) * many + within.clamp(max=many - 1)).flatten(1)
    sums = values.flatten(1).gather(1, places).unflatten(1, (-1, GROUP)) + offsets.gather(1, part).unsqueeze(2)
    found, order = sums.masked_fill(within >= many, -torch.inf).flatten(1).topk(count, dim=1)
    return found, places.gather(1, order)
