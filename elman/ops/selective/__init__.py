"""The selective scan of Mamba (Gu & Dao, 2023): a diagonal state space model whose Δ, B and C depend on the input.

    h_t = exp(Δ_t λ) · h_{t-1} + Δ_t x_t B_t,   y_t = (C_t · h_t + D x_t) · silu(gate_t)

    x, Δ, gate, y  (batch, time, channels)      B, C  (batch, time, size)      h  (batch, channels, size)
    λ = `rate`, D = `skip`, B = `write`, C = `read`

The states of all positions take time · channels · size elements, so no fast form saves them: backward recomputes them
from checkpoints at the beginning of each piece of time.
"""

from torch import Tensor

from elman.ops.forms import Form, Forms
from elman.ops.scan.kernel import obstacle
from elman.ops.selective import chunked, kernel
from elman.ops.selective.chunked import Selection
from elman.shapes import Sequence

FORMS = Forms(
    "the selective scan",
    {
        "kernel": Form(kernel.run, "Triton, fused from step sizes to gated outputs", obstacle, device="cuda"),
        "chunked": Form(chunked.run, "pieces of time in torch, with checkpoints"),
        "reference": Form(chunked.reference, "the plain loop"),
    },
)


def selective_scan(
    x: Sequence,
    selection: Selection,
    rate: Tensor,
    initial: Tensor,
    skip: Tensor | None = None,
    gate: Sequence | None = None,
) -> tuple[Sequence, Tensor]:
    """Outputs (batch, time, channels) and the last state (batch, channels, size).

    `rate` (λ) is (channels, size), `skip` (D) (channels,), `gate` is like x. Step sizes are float32 at least;
    the others may be in half precision.
    """
    return FORMS[FORMS.taken(x)].run(x, selection, rate, initial, skip, gate)
