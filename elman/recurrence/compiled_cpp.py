"""The compiled form: C++ written for this very cell, forward and backward, that walks whole sequences on a CPU.

Forward keeps what the derivative of a step needs, so no gate is computed twice. Backward walks the other way with a
second function; the gradients of matrices come afterwards from all steps at once, in one product each.
"""

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from elman.compiler.cell_program import first_parameter, in_use, step_of
from elman.compiler.cpu import build
from elman.compiler.cpu.autograd import Recurrence
from elman.compiler.cpu.memory_layout import Plan
from elman.compiler.errors import NoCompiler
from elman.compiler.input_projection import Driving
from elman.ops import taps
from elman.ops.state import map_state, tensors
from elman.shapes import Lengths, Sequence, State

KINDS = (torch.float32, torch.float64)
SHORT = 12  # steps; below, packing the weights takes as long as they save
WIDE = 512  # units from which on oneDNN's LSTM is slower
LEAST = 1 << 20  # multiplications by one recurrent matrix in one call: the loop takes some milliseconds more

_plans: WeakKeyDictionary[nn.Module, dict[tuple[bool, bool, torch.dtype], Plan | str]] = WeakKeyDictionary()


def plan(cell: Any, ragged: bool = False) -> Plan | str:
    """The cell's plan, or the reason why it has none; made once."""
    known, kind = _plans.get(cell), _kind(cell)
    if known is None:
        known = _plans[cell] = {}
    made = known.get((cell.training, ragged, kind))
    if made is None:
        step = step_of(cell, ragged, careful=True)
        made = known[cell.training, ragged, kind] = step if isinstance(step, str) else Plan(step, kind, Driving(cell))
    return made


def _kind(cell: Any) -> torch.dtype:
    return first_parameter(cell).dtype


def obstacle(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """Why this form cannot run."""
    problem = _unable(cell, x)
    made = problem or plan(cell, lengths is not None)
    return made if isinstance(made, str) else None


def _unable(cell: Any, x: Sequence) -> str | None:
    """What can be told without a look at the cell's equations."""
    kind, half = _kind(cell), torch.is_autocast_enabled("cpu")
    traced = type(x) not in (Tensor, nn.Parameter) or torch.jit.is_tracing() or torch.compiler.is_compiling()
    watched = torch._C._len_torch_dispatch_stack() > 0  # by a counter of operations, say
    found = taps.listening(), not x.is_cpu, x.numel() == 0, half, kind not in KINDS, traced, watched
    if True in found:
        reasons = (
            "a recorder is listening",
            f"compiled steps need a CPU, not {x.device.type}",
            "the batch is empty",
            "under autocast steps are not compiled",
            f"compiled steps do not compute in {str(kind).removeprefix('torch.')}",
            "the model is being traced",
            "torch's operations are watched, and compiled steps are none of them",
        )
        return reasons[found.index(True)]
    try:
        build.compiler()
    except NoCompiler as reason:
        return str(reason)
    return None


def drawback(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """Why another form should run.

    It depends on shapes alone, never on what ran before: a run that is resumed must take the same form again.
    """
    problem = _unable(cell, x) or _slower(cell, x, lengths)
    made = problem or plan(cell, lengths is not None)
    if isinstance(made, str):
        return made
    try:
        made.walks  # noqa: B018
    except NoCompiler as reason:
        return str(reason)
    return None


def _slower(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """As measured on one core (python -m benchmarks cells)."""
    if x.shape[0] * x.shape[1] * cell.hidden_size**2 < LEAST:
        return "so little work is not worth a compiler's time"
    if x.shape[1] < SHORT:
        return f"below {SHORT} steps compiled ones are no faster"
    call = cell.vendor()
    if cell.hidden_size < WIDE and lengths is None and not isinstance(call, str) and call.kernel == "lstm":
        return f"below {WIDE} units the vendor's LSTM is as fast"
    return None


def title(cell: Any, x: Sequence, lengths: Lengths | None) -> str:
    return f"C++ generated for {cell.name}"


def run(cell: Any, x: Sequence, state: State, lengths: Lengths | None) -> tuple[Sequence, State]:
    made = plan(cell, lengths is not None)
    assert isinstance(made, Plan)
    heard = made.driving.product(cell, x, made.kind) or (cell.drive(x), None, None)
    parts = [state] if isinstance(state, Tensor) else [part for _, part in tensors(state)]
    weights = [in_use(cell, name) for name in made.names]
    ends = None if lengths is None else lengths.to(torch.int64).contiguous()
    outputs, *finals = Recurrence.apply((made, torch.is_grad_enabled(), ends), *heard, *parts, *weights)
    finals = [new if new.dtype == old.dtype else new.to(old.dtype) for new, old in zip(finals, parts, strict=True)]
    return outputs, finals[0] if isinstance(state, Tensor) else map_state(lambda part: finals.pop(0), state)
