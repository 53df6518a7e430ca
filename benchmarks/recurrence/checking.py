"""Whether a case is right: outputs, states and gradients against float64, beside torch's error in the same dtype."""

import math
import time
from copy import deepcopy
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.recurrence.cases import KINDS, Case, build
from elman.compiler.triton.partition import Partition
from elman.layers.bidirectional import Bidirectional
from elman.layers.recurrent import Recurrent
from elman.ops import kernel_timeout
from elman.ops.state import tensors
from elman.recurrence import compiled_triton, forms_that_can_run, using
from elman.recurrence.compiled_triton import use_partitions

LENGTH = 48  # steps: enough to go wrong, at the very sizes that are timed, so that everything is compiled by then
ALLOWED = 1.5  # times torch's own error: right
SOUND = 5.0  # times: less exact, but the same computation


def check(case: Case, kind: str, device: str, form: str, partition: dict[str, Any] | None = None) -> dict[str, Any]:
    """Our error and theirs over the case's draws, the time of the first call, and how the work was divided."""
    case.set_precision()
    batch, length, size = case.shape
    layer = build(case, KINDS[kind], device)
    given = {way: Partition(**own) for way, own in (partition or {}).items()}
    torch.manual_seed(1)
    ours, theirs, times = [], [], []
    for _ in range(case.draws):
        x = torch.randn(batch, min(length, LENGTH), size, device=device).to(KINDS[kind])
        lengths = torch.randint(0, x.shape[1] + 1, (batch,), device=device) if case.form == "ragged" else None
        expected = trained(deepcopy(layer).double(), x, lengths, "reference")
        began = time.perf_counter()
        with use_partitions(**given):
            ours.append(errors(trained(layer, x, lengths, form), expected))
        times.append(time.perf_counter() - began)
        if device == "cuda":
            kernel_timeout.check(torch.device("cuda", 0), wait=True)
        other = "vendor" if "vendor" in forms_that_can_run(cell_of(layer), x, lengths) else "reference"
        theirs.append(errors(trained(layer, x, lengths, other), expected))
    own, peer = _typical(ours), _typical(theirs)
    found = {"verdict": verdict(own, peer), "ours": own, other: peer, "first_call_s": round(times[0], 2)}
    return found | {"divided": _divided(layer, x, lengths)}


def trained(layer: nn.Module, x: Tensor, lengths: Tensor | None, form: str) -> dict[str, list[Tensor]]:
    """Outputs at real positions, last states and all gradients, in float64."""
    layer.zero_grad()
    x = x.detach().to(next(layer.parameters()).dtype, copy=True).requires_grad_()
    with using(form):
        outputs, state = layer(x, None, lengths)
        if lengths is not None:
            outputs = outputs * (torch.arange(x.shape[1], device=x.device) < lengths.unsqueeze(1)).unsqueeze(-1)
        weight = torch.linspace(-1, 1, outputs[0].numel(), device=x.device).view_as(outputs[0])
        ends = [part for _, part in tensors(state)]
        loss = (outputs.double() * weight).sum() + sum(part.double().square().sum() for part in ends)
        loss.backward()
    gradients = [one.grad for one in (x, *layer.parameters()) if one.grad is not None]
    found = {"outputs": [outputs], "states": ends, "gradients": gradients}
    return {name: [one.detach().double() for one in some] for name, some in found.items()}


def errors(found: dict[str, list[Tensor]], expected: dict[str, list[Tensor]]) -> dict[str, float]:
    """The largest relative error of each kind."""
    return {name: max(_error(*pair) for pair in zip(found[name], expected[name], strict=True)) for name in expected}


def _typical(draws: list[dict[str, float]]) -> dict[str, float]:
    """Root mean squares: what goes wrong in one draw of many is seen."""
    return {name: math.hypot(*(one[name] for one in draws)) / math.sqrt(len(draws)) for name in draws[0]}


def _error(found: Tensor, expected: Tensor) -> float:
    size = float((found - expected).norm() / expected.norm().clamp(min=1e-30))
    return size if math.isfinite(size) else math.inf


def verdict(ours: dict[str, float], theirs: dict[str, float]) -> str:
    """Only what is wrong is not timed."""
    if all(ours[name] <= ALLOWED * theirs[name] for name in ours):
        return "right"
    return "less exact" if all(ours[name] <= SOUND * theirs[name] for name in ours) else "wrong"


def cell_of(layer: Any) -> Any:
    """The first cell of a layer."""
    return next(part.cell for part in layer.modules() if isinstance(part, Recurrent))


def _divided(layer: Any, x: Tensor, lengths: Tensor | None) -> dict[str, Any]:
    """How generated kernels share the work of this layer, where there are any."""
    cell = cell_of(layer)
    made = compiled_triton.compiled_cell(cell, lengths is not None, torch.get_float32_matmul_precision() == "highest")
    if isinstance(made, str) or x.device.type != "cuda":
        return {}
    at_once = isinstance(layer, Bidirectional) and not compiled_triton.apart(cell, layer.back.cell, x, lengths)
    found = {}
    for way in ("forward", "backward"):
        part = made.partition(way, len(x), x.dtype, x.device, 2 if at_once else 1)
        found[way] = None if part is None else asdict(part)
    return found
