"""The vendor form: torch's own recurrent kernels (cuDNN on a GPU, oneDNN or torch's C++ loop on a CPU)."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from elman.ops.forms import first_problem
from elman.ops.state import leaves, with_leaves
from elman.shapes import Lengths, Sequence, State

MIN_STEPS = 4  # a call of oneDNN first reorders all weights, which costs as much as about three steps


class VendorCall(NamedTuple):
    """The torch function that computes a cell (`torch.lstm`, ...), and the weights in its order."""

    kernel: str
    weights: list[Tensor]

    @classmethod
    def of(cls, kernel: str, from_input: nn.Linear, from_past: Tensor, past_bias: Tensor | None = None) -> "VendorCall":
        """Kernels take a bias for both products or for neither; the recurrent one is zero if the cell has none."""
        if from_input.bias is None:
            return cls(kernel, [from_input.weight, from_past])
        past_bias = torch.zeros_like(from_input.bias) if past_bias is None else past_bias
        return cls(kernel, [from_input.weight, from_past, from_input.bias, past_bias])


def obstacle(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """Why this form cannot run."""
    call, device = cell.vendor(), x.device.type
    half = device == "cpu" and torch.is_autocast_enabled("cpu")
    one_dnn = device == "cpu" and not isinstance(call, str) and call.kernel == "lstm"
    problems = {
        f"vendor kernels are not tested on {device}": device not in ("cpu", "cuda"),
        "the batch is empty": x.numel() == 0,
        "under autocast the vendor's CPU kernels do not keep the state in float32": half,
        "torch.compile cannot differentiate torch's LSTM on a CPU": one_dnn and torch.compiler.is_compiling(),
    }
    return call if isinstance(call, str) else first_problem(problems)


def drawback(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """Why another form is faster, as measured on one core (batch 1 and 32, width 256 and 512)."""
    if x.device.type != "cpu":
        return None
    if x.shape[1] < MIN_STEPS:
        return f"below {MIN_STEPS} steps the plain loop is faster on a CPU"
    if lengths is not None:
        return "rows of unequal length are faster in the plain loop on a CPU"
    return None


def title(cell: Any, x: Sequence, lengths: Lengths | None) -> str:
    """The library and the kernel."""
    kernel = cell.vendor().kernel
    if x.device.type == "cuda":
        maker = "cuDNN" if torch.backends.cudnn.is_available() and torch.backends.cudnn.enabled else "torch's CUDA"
    else:
        one_dnn = kernel == "lstm" and x.dtype == torch.float32 and torch.backends.mkldnn.is_available()
        maker = "oneDNN" if one_dnn else "torch's C++"
    return f"{maker} {cell.name.upper()}"


def run(cell: Any, x: Sequence, state: State, lengths: Lengths | None) -> tuple[Sequence, State]:
    parts = leaves(state)
    if lengths is None:
        outputs, finals = _call(cell, (x,), parts, batch_first=True)
    else:
        outputs, finals = _ragged(cell, x, parts, lengths.cpu())
    finals = [final.to(part.dtype) for final, part in zip(finals, parts, strict=True)]
    return outputs, with_leaves(state, finals)


def _ragged(cell: Any, x: Sequence, parts: list[Tensor], lengths: Tensor) -> tuple[Sequence, list[Tensor]]:
    """Runs a packed sequence; rows of length 0, which packing does not support, keep their state."""
    batch, time, _ = x.shape
    real = int((lengths > 0).sum())
    order = lengths.argsort(descending=True, stable=True)[:real]
    rows = order.to(x.device)
    if real == 0:
        return x.new_zeros(batch, time, parts[0].shape[-1]), parts
    packed = pack_padded_sequence(x[rows], lengths[order], batch_first=True)
    outputs, finals = _call(cell, (packed.data, packed.batch_sizes), [part[rows] for part in parts])
    padded, _ = pad_packed_sequence(PackedSequence(outputs, packed.batch_sizes), batch_first=True, total_length=time)
    outputs = padded.new_zeros(batch, *padded.shape[1:]).index_copy(0, rows, padded)
    finals = [part.index_copy(0, rows, final.to(part.dtype)) for part, final in zip(parts, finals, strict=True)]
    return outputs, finals


def _call(cell: Any, inputs: tuple[Tensor, ...], parts: list[Tensor], **options: bool) -> tuple[Tensor, list[Tensor]]:
    call = cell.vendor()
    x, *sizes = inputs
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else call.weights[0].dtype
    weights = [weight.to(dtype) for weight in call.weights]
    past = [part.to(dtype).unsqueeze(0) for part in parts]
    with torch.autocast(device, enabled=False), _without_warning(device):
        outputs, *finals = getattr(torch, call.kernel)(
            x.to(dtype),
            *sizes,
            past if len(past) > 1 else past[0],
            weights,
            has_biases=len(weights) == 4,
            num_layers=1,
            dropout=0.0,
            train=torch.is_grad_enabled(),  # cuDNN saves for backward only then
            bidirectional=False,
            **options,
        )
    return outputs, [final.squeeze(0) for final in finals]


@contextmanager
def _without_warning(device: str) -> Iterator[None]:
    """Suppresses cuDNN's warning, on each call, that it copies weights which are not one contiguous chunk."""
    if device != "cuda":
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        yield
