"""Linear attention with decay: S_t = γ_t S_{t-1} + k_t v_tᵀ, y_t = q_t S_t, one matrix S for each head.

Seen from the output it is attention without softmax whose scores q_i·k_j fade by the decays between j and i. The
chunked form computes just that inside a chunk, as matrix products, and carries S from chunk to chunk. Fading is the
exponential of differences of summed logarithms, all of them negative: nothing is divided and nothing overflows.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from elman.ops.scan import linear_scan, linear_scan_reference


def linear_attention_reference(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, initial: Tensor
) -> tuple[Tensor, Tensor]:
    """The definition: every state, one after the other, and what each query reads from its own."""
    written = key.unsqueeze(-1) * value.unsqueeze(-2)
    history, final = linear_scan_reference(log_decay.exp()[..., None, None], written, initial)
    return (query.unsqueeze(-2) @ history).squeeze(-2), final


def linear_attention(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, initial: Tensor, *, chunk: int = 64
) -> tuple[Tensor, Tensor]:
    """Outputs (batch, time, heads, value size) and the last state (batch, heads, key size, value size).

    `query` and `key` are (batch, time, heads, key size), `log_decay` (batch, time, heads), at most 0. A position with
    key 0 and decay 1 leaves the state as it is. `chunk` changes speed and memory, not the result.
    """
    time = query.shape[1]
    steps = min(chunk, time)

    def pieces(whole: Tensor) -> Tensor:
        """(batch, chunks, heads, steps, ...); the end is filled with what leaves the state as it is."""
        filled = F.pad(whole, (0, 0) * (whole.dim() - 2) + (0, -time % steps))
        return filled.unflatten(1, (-1, steps)).transpose(2, 3)

    query, key, value = pieces(query), pieces(key), pieces(value)
    faded = pieces(log_decay).cumsum(-1)  # since the chunk began
    later = torch.ones(steps, steps, dtype=torch.bool, device=query.device).triu(1)
    between = (faded.unsqueeze(-1) - faded.unsqueeze(-2)).masked_fill(later, -torch.inf).exp()
    inside = (query @ key.transpose(-1, -2) * between) @ value

    until_end = (faded[..., -1:] - faded).exp().unsqueeze(-1)
    written = (key * until_end).transpose(-1, -2) @ value
    history, final = linear_scan(faded[..., -1].exp()[..., None, None], written, initial)
    before = torch.cat([initial.unsqueeze(1), history[:, :-1]], 1)
    outputs = inside + (query * faded.exp().unsqueeze(-1)) @ before
    return outputs.transpose(2, 3).flatten(1, 2)[:, :time], final
