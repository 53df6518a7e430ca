"""All steps of a nonlinear cell at once: guess the whole trajectory, linearise each step, solve by a scan, repeat.

Newton's method on h_t = f(h_{t-1}, x_t) for all t together (DEER, Lim et al., 2023); with the diagonal of the Jacobian
alone each iteration is a linear scan (quasi-DEER, Gonzalez et al., 2024). Whatever stands for the Jacobian, the first k
steps are exact after k iterations, and the solution is the same. It is taken only with a certificate: no step may miss
its equation by more than rounding does. Else the sequential form runs. The gradient solves its own, linear equation
in the same way, until it has a certificate of its own.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from elman.ops import taps
from elman.ops.state import tensors
from elman.shapes import Lengths, Sequence, State

MOST = 64  # iterations: beyond, a sequential form is surely faster
ROUNDING = 16  # a residual of so many units in the last place is taken for none

Parts = list[Tensor]
Slopes = list[Parts]  # slopes[p][q]: of the new part p by the old part q, of the same unit


class Certificate(NamedTuple):
    """What the iteration reached: the largest |h_t − f(h_{t−1}, x_t)|, and what was asked of it."""

    iterations: int
    residual: float
    tolerance: float

    @property
    def holds(self) -> bool:
        return self.residual <= self.tolerance

    def __str__(self) -> str:
        found = f"residual {self.residual:.1e} after {self.iterations} iterations (tolerance {self.tolerance:.1e})"
        return found if self.holds else f"{found}: the sequential form ran instead"


_latest: dict[str, Certificate] = {}


def latest() -> dict[str, Certificate]:
    """Of the last call: the certificate of its "states", and, once computed, that of its "gradients"."""
    return dict(_latest)


def obstacle(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """Why this form cannot run."""
    if taps.listening():
        return "a recorder is listening"
    if x.numel() == 0:
        return "the batch is empty"
    carried = [part for _, part in tensors(cell.initial_state(1))]
    if not all(part.is_floating_point() for part in carried) or len({part.shape for part in carried}) > 1:
        return "a part of the state is no real number, or not as wide as another: units have no slopes of their own"
    kinds = {one.dtype for one in (x, *cell.parameters(), *carried)}
    if torch.is_autocast_enabled(x.device.type) or not kinds <= {torch.float32, torch.float64}:
        return "half precision rounds away what a certificate measures"
    if any(isinstance(module, nn.LayerNorm) for module in cell.modules()):
        return "a norm ties all units together: with slopes of single units the iteration was never certified"
    return None


def drawback(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    return "iterations over the whole sequence run only on request: nowhere were they measured to be faster"


def title(cell: Any, x: Sequence, lengths: Lengths | None) -> str:
    return "all steps at once, by Newton iteration"


def run(cell: Any, x: Sequence, state: State, lengths: Lengths | None) -> tuple[Sequence, State]:
    """As the reference to within its certificate, or by the best sequential form; `latest` tells."""
    from elman.ops.scan.reference import last_state

    drive, initial = cell.drive(x), _parts(state)
    _latest.clear()
    with torch.no_grad():
        states, slopes, certificate = solve(cell, drive, state)
        _latest["states"] = _confirmed(certificate, cell, drive, states, state)
    if not _latest["states"].holds:
        return _sequential(cell, x, state, lengths)
    before = [_shifted(first, part) for first, part in zip(initial, states, strict=True)]
    if torch.is_grad_enabled():
        before = [part if part.requires_grad else part.requires_grad_() for part in before]
    outputs, *news = _steps(cell, drive, before, state)
    if torch.is_grad_enabled() and any(part.requires_grad for part in (outputs, *news)):
        outputs, *news = _Adjoint.apply(slopes, *before, outputs, *news)
    finals = [last_state(part, first, lengths) for part, first in zip(news, initial, strict=True)]
    return outputs, _like(state, finals)


def solve(cell: Any, drive: Tensor, state: State) -> tuple[Parts, Slopes, Certificate]:
    """All states (batch, time, ...), one tensor for each part, with the slopes there and the certificate."""
    from elman.ops.scan import linear_scan

    initial = _parts(state)
    ahead = [first.unsqueeze(1).expand(-1, drive.shape[1], *first.shape[1:]) for first in initial]
    _, *states = _steps(cell, drive, ahead, state)
    for iteration in range(MOST + 1):
        before = [_shifted(first, part) for first, part in zip(initial, states, strict=True)]
        news, slopes = linearised(cell, drive, before, state)
        certificate = _certificate(iteration, news, states, floor=1.0)
        if certificate.holds or not certificate.residual < torch.inf:
            break
        moved: dict[int, Tensor] = {}  # by how much the solved parts' old states change; the memory comes first
        for p in reversed(range(len(news))):
            inputs = news[p] - slopes[p][p] * before[p]
            for q, change in moved.items():
                inputs = inputs + slopes[p][q] * change
            solved, _ = linear_scan(slopes[p][p], inputs, initial[p])
            moved[p] = _shifted(torch.zeros_like(initial[p]), solved - states[p])
            states[p] = solved
    return states, slopes, certificate


def _confirmed(certificate: Certificate, cell: Any, drive: Tensor, states: Parts, state: State) -> Certificate:
    """The same if the last step, taken alone, agrees: not where a step mixes its rows, draws, or counts its calls."""
    before = [_shifted(first, part)[:, -1] for first, part in zip(_parts(state), states, strict=True)]
    _, new = cell.step(drive[:, -1], _like(state, before))
    pairs = list(zip(_parts(new), [part[:, -1] for part in states], strict=True))
    sizes = [torch.stack([(alone - among).abs().max(), alone.abs().max()]) for alone, among in pairs]
    missed, scale = torch.stack(sizes).amax(0).tolist()
    rough = torch.finfo(drive.dtype).eps ** 0.5 * max(scale, 1.0)  # products of another shape add up in another order
    return certificate if missed <= rough else certificate._replace(residual=missed)


def linearised(cell: Any, drive: Tensor, before: Parts, state: State) -> tuple[Parts, Slopes]:
    """All new states, and the slope of each number by the old ones of its unit, at most 1: then nothing explodes."""
    with torch.enable_grad(), _DiagonalProducts():
        olds = [old.detach().requires_grad_() for old in before]
        _, *news = _steps(cell, drive.detach(), olds, state)
    slopes = []
    for new in news:
        found = torch.autograd.grad(new, olds, torch.ones_like(new), retain_graph=True, materialize_grads=True)
        slopes.append([slope.clamp(-1, 1) for slope in found])
    return [new.detach() for new in news], slopes


class _DiagonalProducts(TorchFunctionMode):
    """Inside, square blocks of a product pass gradients from each unit to itself alone: one pass gives a diagonal."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.linear or args[1].shape[0] % args[1].shape[1]:
            return func(*args, **(kwargs or {}))
        past, weight = args[0], args[1]
        own = weight.unflatten(0, (-1, weight.shape[1])).diagonal(dim1=1, dim2=2)
        nothing = (past - past.detach()).unsqueeze(-2) * own
        return func(past.detach(), *args[1:], **(kwargs or {})) + nothing.flatten(-2)


class _Adjoint(torch.autograd.Function):
    """Nothing on the way forward. Backward, the gradient of each state becomes that through all later steps as well.

    `tensors` are the states before each step, the outputs, and the states after it.
    """

    @staticmethod
    def forward(ctx, slopes, *tensors):  # type: ignore[no-untyped-def]
        ctx.slopes = slopes
        ctx.save_for_backward(*tensors)
        return tuple(tensor.view_as(tensor) for tensor in tensors[len(slopes) :])

    @staticmethod
    @once_differentiable
    def backward(ctx, for_outputs, *given):  # type: ignore[no-untyped-def]
        from elman.ops.scan import linear_scan

        parts = len(given)
        before, results = ctx.saved_tensors[:parts], ctx.saved_tensors[parts:]
        later = [[_ahead(slope) for slope in row] for row in ctx.slopes]  # each slope beside the state it leads to
        totals = list(given)
        for iteration in range(len(given[0][0]) + 1):  # as many as there are steps are surely enough
            back = torch.autograd.grad(results, before, (for_outputs, *totals), retain_graph=True, allow_unused=True)
            aims = [own if past is None else own + _ahead(past) for own, past in zip(given, back, strict=True)]
            certificate = _latest["gradients"] = _certificate(iteration, aims, totals)
            if certificate.holds or not certificate.residual < torch.inf:
                break
            moved: dict[int, Tensor] = {}
            for p in range(parts):
                inputs = aims[p] - later[p][p] * _ahead(totals[p])
                for q, change in moved.items():
                    inputs = inputs + later[q][p] * change
                solved, _ = linear_scan(later[p][p], inputs, torch.zeros_like(inputs[:, 0]), reverse=True)
                moved[p] = _ahead(solved - totals[p])
                totals[p] = solved
        return None, *[None] * parts, for_outputs, *totals


def _sequential(cell: Any, x: Sequence, state: State, lengths: Lengths | None) -> tuple[Sequence, State]:
    from elman.recurrence import FORMS

    return FORMS[FORMS.favourite(cell, x, lengths, but="newton").form].run(cell, x, state, lengths)


def _steps(cell: Any, drive: Tensor, before: Parts, state: State) -> Parts:
    """The cell's step at all positions as one large batch: outputs and the parts of the new states."""
    batch, time = drive.shape[:2]
    output, new = cell.step(drive.flatten(0, 1), _like(state, [part.flatten(0, 1) for part in before]))
    return [part.unflatten(0, (batch, time)) for part in (output, *_parts(new))]


def _certificate(iteration: int, aims: Parts, found: Parts, floor: float = 0.0) -> Certificate:
    residual = torch.stack([(aim - part).abs().max() for aim, part in zip(aims, found, strict=True)]).max()
    scale = torch.stack([aim.abs().max() for aim in aims]).max().clamp(min=floor)
    residual, scale = torch.stack([residual, scale]).tolist()  # both at once: on a GPU every question waits
    return Certificate(iteration, residual, ROUNDING * torch.finfo(aims[0].dtype).eps * scale)


def _shifted(first: Tensor, states: Tensor) -> Tensor:
    """What each step starts from."""
    return torch.cat([first.unsqueeze(1), states[:, :-1]], 1)


def _ahead(states: Tensor) -> Tensor:
    """What belongs to the next step, beside this one; after the last, nothing."""
    return torch.cat([states[:, 1:], torch.zeros_like(states[:, :1])], 1)


def _parts(state: State) -> Parts:
    return [state] if isinstance(state, Tensor) else list(state)


def _like(state: State, parts: Parts) -> State:
    if isinstance(state, Tensor):
        return parts[0]
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
