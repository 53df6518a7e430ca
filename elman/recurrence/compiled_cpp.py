"""The compiled form: C++ generated for this cell, forward and backward, that runs whole sequences on a CPU.

Forward saves what the derivative of a step needs, so no gate is computed twice. Backward is a second kernel that runs
from the last step to the first; gradients of matrices follow afterwards, in one GEMM over all steps each.
"""

from typing import Any

import torch
from torch import Tensor, nn

from elman.compiler.cell_program import InputProjection, active_weight, cached_per_cell, first_parameter, step_ir
from elman.compiler.cpu import build
from elman.compiler.cpu.autograd import CompiledRecurrence
from elman.compiler.cpu.memory_layout import SequencePlan
from elman.compiler.errors import NoCompiler
from elman.ops.forms import first_problem
from elman.ops.lookup import Lookup
from elman.ops.state import leaves, with_leaves
from elman.shapes import Lengths, Sequence, State

DTYPES = (torch.float32, torch.float64)
MIN_STEPS = 12  # below, packing the weights costs as much as it saves
ONEDNN_UNITS = 512  # up to which oneDNN's LSTM is as fast
MIN_WORK = 1 << 20  # multiplications by one recurrent matrix in one call; below, the plain loop loses milliseconds only


def plan(cell: Any, ragged: bool = False) -> SequencePlan | str:
    """The cell's plan (cached), or the reason why it has none."""
    return _plan(cell, ragged, first_parameter(cell).dtype)


@cached_per_cell
def _plan(cell: Any, ragged: bool, dtype: torch.dtype) -> SequencePlan | str:
    step = step_ir(cell, ragged, True)
    return step if isinstance(step, str) else SequencePlan(step, dtype, InputProjection(cell))


def obstacle(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """Why this form cannot run."""
    return _unsupported(cell, x) or _without_plan(cell, lengths)


def _without_plan(cell: Any, lengths: Lengths | None) -> str | None:
    found = plan(cell, lengths is not None)
    return found if isinstance(found, str) else None


def _unsupported(cell: Any, x: Sequence) -> str | None:
    """The obstacles that need no look at the cell's equations."""
    dtype, autocast = first_parameter(cell).dtype, torch.is_autocast_enabled("cpu")
    traced = type(x) not in (Tensor, nn.Parameter) or torch.jit.is_tracing() or torch.compiler.is_compiling()
    dispatch_mode = torch._C._len_torch_dispatch_stack() > 0  # a FLOP counter, for example
    problems = {
        f"compiled steps need a CPU, not {x.device.type}": not x.is_cpu,
        "the batch is empty": x.numel() == 0,
        "steps are not compiled under autocast": autocast,
        f"steps are not compiled for {str(dtype).removeprefix('torch.')}": dtype not in DTYPES,
        "the model is being traced": traced,
        "a torch dispatch mode is active, which would not see compiled steps": dispatch_mode,
    }
    if problem := first_problem(problems):
        return problem
    try:
        build.compiler()
    except NoCompiler as reason:
        return str(reason)
    return None


def drawback(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """Why another form should run.

    It depends on shapes alone, never on what ran before, since a resumed run must take the same form again.
    """
    return _unsupported(cell, x) or _slower(cell, x, lengths) or _without_kernels(cell, lengths)


def reads_table(cell: Any, x: Lookup, lengths: Lengths | None) -> bool:
    """Whether this form can take the rows of a table; then it is always the fastest."""
    return not (_unsupported(cell, x.table) or _without_kernels(cell, lengths))


def _without_kernels(cell: Any, lengths: Lengths | None) -> str | None:
    found = plan(cell, lengths is not None)
    if isinstance(found, str):
        return found
    try:
        found.kernels  # noqa: B018
    except NoCompiler as reason:
        return str(reason)
    return None


def _slower(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """As measured on one core (python -m benchmarks cells)."""
    if x.shape[0] * x.shape[1] * cell.hidden_size**2 < MIN_WORK:
        return "the sequence is too short to be worth compiling"
    if x.shape[1] < MIN_STEPS:
        return f"below {MIN_STEPS} steps compiled ones are no faster"
    call = cell.vendor()
    if cell.hidden_size < ONEDNN_UNITS and lengths is None and not isinstance(call, str) and call.kernel == "lstm":
        return f"below {ONEDNN_UNITS} units the vendor's LSTM is as fast"
    return None


def title(cell: Any, x: Sequence, lengths: Lengths | None) -> str:
    return f"C++ generated for {cell.name}"


def run(cell: Any, x: Sequence | Lookup, state: State, lengths: Lengths | None) -> tuple[Sequence, State]:
    sequence = plan(cell, lengths is not None)
    assert isinstance(sequence, SequencePlan)
    chosen = x.rows.contiguous() if isinstance(x, Lookup) else None
    x = x.table.unsqueeze(0) if isinstance(x, Lookup) else x
    inputs = sequence.projection.operands(cell, x, sequence.dtype) or (cell.drive(x), None, None)
    parts = leaves(state)
    weights = [active_weight(cell, name) for name in sequence.names]
    ends = None if lengths is None else lengths.to(torch.int64).contiguous()
    settings = sequence, torch.is_grad_enabled(), ends, chosen
    outputs, *finals = CompiledRecurrence.apply(settings, *inputs, *parts, *weights)
    finals = [new if new.dtype == old.dtype else new.to(old.dtype) for new, old in zip(finals, parts, strict=True)]
    return outputs, with_leaves(state, finals)
