"""The linear recurrence h_t = decay_t · h_{t-1} + inputs_t: one definition, several forms, and who chooses."""

import torch
from torch import Tensor

from elman.errors import ConfigError
from elman.ops import taps
from elman.ops.forms import Choice, Form, Forms, never
from elman.ops.scan import chunked, kernel, reference
from elman.ops.scan.chunked import run as linear_scan_chunked
from elman.ops.scan.kernel import run as linear_scan_kernel
from elman.ops.scan.reference import run as linear_scan_reference
from elman.shapes import Lengths

__all__ = [
    "FORMS",
    "Choice",
    "choose",
    "explain",
    "linear_scan",
    "linear_scan_chunked",
    "linear_scan_kernel",
    "linear_scan_reference",
]


def unwatched(inputs: Tensor) -> str | None:
    """Why no fast form can run: somebody wants to see every step."""
    return "a recorder is listening" if taps.listening() else None


FORMS = Forms(
    "the scan",
    {
        "kernel": Form(kernel.run, kernel.obstacle, never, lambda inputs: "Triton, a lane for each channel", "cuda"),
        "chunked": Form(chunked.run, unwatched, never, lambda inputs: "chunks side by side in torch"),
        "reference": Form(reference.run, never, never, lambda inputs: "the plain loop"),
    },
)
choose, explain = FORMS.choose, FORMS.explain


def linear_scan(
    decay: Tensor, inputs: Tensor, initial: Tensor, lengths: Lengths | None = None, *, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """All states (batch, time, ...) and each row's state after its last real position; rows of length 0 keep theirs.

    `inputs` is (batch, time, ...), `initial` (batch, ...), `decay` anything that broadcasts to `inputs`; all real or
    complex, computed in float32 at least. In `reverse` each row is walked from its last real position to its first.
    """
    wanted = inputs.shape[:1] + inputs.shape[2:]
    if initial.shape != wanted:  # a kernel would read what lies behind it
        raise ConfigError(
            f"a scan over inputs of shape {tuple(inputs.shape)} begins with a state of {tuple(wanted)}, not "
            f"{tuple(initial.shape)}"
        )
    if reverse and lengths is not None:  # what is not real comes first, and must leave the state as it is
        real = torch.arange(inputs.shape[1], device=inputs.device) < lengths.to(inputs.device).unsqueeze(1)
        real = real.view(*real.shape, *[1] * (inputs.dim() - 2))
        decay, inputs = torch.where(real, decay, 1), torch.where(real, inputs, 0)
    return FORMS[choose(inputs).form].run(decay, inputs, initial, lengths, reverse)
