"""Linear recurrence (scan): h_t = decay_t · h_{t-1} + inputs_t. Reference, faster forms and dispatch."""

import torch
from torch import Tensor

from elman.errors import ConfigError
from elman.ops.forms import Form, Forms
from elman.ops.scan.chunked import reference as linear_scan_reference
from elman.ops.scan.chunked import run as linear_scan_chunked
from elman.ops.scan.kernel import obstacle
from elman.ops.scan.kernel import run as linear_scan_kernel
from elman.shapes import Lengths

FORMS = Forms(
    "the scan",
    {
        "kernel": Form(linear_scan_kernel, "Triton, one lane per channel", obstacle, device="cuda"),
        "chunked": Form(linear_scan_chunked, "chunks in parallel, in torch"),
        "reference": Form(linear_scan_reference, "the plain loop"),
    },
)


def linear_scan(
    decay: Tensor, inputs: Tensor, initial: Tensor, lengths: Lengths | None = None, *, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """All states (batch, time, ...), and the state after each row's last real position (`initial` for length 0).

    `inputs` is (batch, time, ...), `initial` (batch, ...), and `decay` broadcasts to `inputs`; real or complex. It is
    computed in float32 at least. `reverse` scans from each row's last real position to its first.
    """
    wanted = inputs.shape[:1] + inputs.shape[2:]
    if initial.shape != wanted:  # a kernel would read out of bounds
        raise ConfigError(
            f"a scan over inputs of shape {tuple(inputs.shape)} needs an initial state of shape {tuple(wanted)}, not "
            f"{tuple(initial.shape)}"
        )
    if reverse and lengths is not None:  # padding comes first, and must not change the state
        real = torch.arange(inputs.shape[1], device=inputs.device) < lengths.to(inputs.device).unsqueeze(1)
        real = real.view(*real.shape, *[1] * (inputs.dim() - 2))
        decay, inputs = torch.where(real, decay, 1), torch.where(real, inputs, 0)
    return FORMS[FORMS.taken(inputs)].run(decay, inputs, initial, lengths, reverse)
