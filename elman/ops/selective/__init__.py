"""The selective scan (Gu & Dao, 2023): a diagonal state space whose step, write and read depend on the input.

    h_t = exp(Δ_t λ) · h_{t-1} + Δ_t x_t B_t,   y_t = (C_t · h_t + D x_t) · silu(gate_t)

The states of all positions would take (time × channels × size) numbers several times over; so no fast form keeps them:
the backward pass computes them again from those at which stretches of time began.
"""

from torch import Tensor

from elman.ops.forms import Form, Forms, never
from elman.ops.scan import unwatched
from elman.ops.scan.kernel import obstacle
from elman.ops.selective import chunked, kernel
from elman.ops.selective.chunked import Selection
from elman.shapes import Sequence

__all__ = ["FORMS", "Selection", "choose", "explain", "selective_scan"]

FORMS = Forms(
    "the selective scan",
    {
        "kernel": Form(kernel.run, obstacle, never, lambda x: "Triton, from step sizes to gated outputs", "cuda"),
        "chunked": Form(chunked.run, unwatched, never, lambda x: "stretches of time in torch"),
        "reference": Form(chunked.reference, never, never, lambda x: "the plain loop"),
    },
)
choose, explain = FORMS.choose, FORMS.explain


def selective_scan(
    x: Sequence,
    chosen: Selection,
    rate: Tensor,
    initial: Tensor,
    skip: Tensor | None = None,
    gate: Sequence | None = None,
) -> tuple[Sequence, Tensor]:
    """Outputs (batch, time, channels) and the last state (batch, channels, size); `rate` (λ) is (channels, size).

    `skip` (channels,) lets the input through beside the state; `gate`, like x, says after SiLU what share is let out.
    Step sizes are float32 at least; the rest may be narrow.
    """
    return FORMS[choose(x).form].run(x, chosen, rate, initial, skip, gate)
