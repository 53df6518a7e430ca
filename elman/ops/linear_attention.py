"""Linear attention with decay: S_t = γ_t S_{t-1} + k_t v_tᵀ, y_t = q_t S_t, one matrix S for each head.

Equivalently, attention without softmax whose scores q_i·k_j are multiplied by the decays between j and i. The chunked
form computes that inside a chunk, as matmuls, and carries S from chunk to chunk. Decays are exponentials of differences
of cumulative logarithms, all of them at most 0, so nothing is divided and nothing overflows.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from elman.ops.scan import linear_scan, linear_scan_reference


def linear_attention_reference(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, initial: Tensor
) -> tuple[Tensor, Tensor]:
    """The definition: all states by a sequential scan, each read by its query."""
    written = key.unsqueeze(-1) * value.unsqueeze(-2)
    history, final = linear_scan_reference(log_decay.exp()[..., None, None], written, initial)
    return (query.unsqueeze(-2) @ history).squeeze(-2), final


def linear_attention(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, initial: Tensor, *, chunk: int = 64
) -> tuple[Tensor, Tensor]:
    """Outputs (batch, time, heads, value size) and the last state (batch, heads, key size, value size).

    `query` and `key` are (batch, time, heads, key size), `log_decay` (batch, time, heads), at most 0. A position with
    key 0 and decay 1 does not change the state. `chunk` changes speed and memory, not the result.
    """
    time = query.shape[1]
    steps = min(chunk, time)

    def chunks(x: Tensor) -> Tensor:
        """(batch, chunks, heads, steps, ...); the end is padded with positions that do not change the state."""
        padded = F.pad(x, (0, 0) * (x.dim() - 2) + (0, -time % steps))
        return padded.unflatten(1, (-1, steps)).transpose(2, 3)

    query, key, value = chunks(query), chunks(key), chunks(value)
    log_fade = chunks(log_decay).cumsum(-1)  # since the beginning of the chunk
    later = torch.ones(steps, steps, dtype=torch.bool, device=query.device).triu(1)
    between = (log_fade.unsqueeze(-1) - log_fade.unsqueeze(-2)).masked_fill(later, -torch.inf).exp()
    inside = (query @ key.transpose(-1, -2) * between) @ value

    until_end = (log_fade[..., -1:] - log_fade).exp().unsqueeze(-1)
    written = (key * until_end).transpose(-1, -2) @ value
    history, final = linear_scan(log_fade[..., -1].exp()[..., None, None], written, initial)
    before = torch.cat([initial.unsqueeze(1), history[:, :-1]], 1)
    outputs = inside + (query * log_fade.exp().unsqueeze(-1)) @ before
    return outputs.transpose(2, 3).flatten(1, 2)[:, :time], final
