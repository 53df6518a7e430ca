"""Newton's method over the whole sequence: all T steps of a nonlinear cell are computed in parallel.

Solves h_t = f(h_{t-1}, x_t) for all t together (DEER, Lim et al., 2023). One iteration:

    1. evaluate f and J_t = ∂f/∂h_{t-1} at the current guess        one batch of B·T rows, no order in time
    2. solve the linear recurrence h_t = f_t + J_t (h_{t-1} - guess_{t-1})        a parallel scan, depth log T

J_t is the diagonal of the Jacobian, so that the scan is element-wise (quasi-DEER, Gonzalez et al., 2024). With any J_t
the solution is the same, and after k iterations the first k steps are exact. The result is used only with a
certificate: no step misses its equation by more than rounding. Otherwise the sequential form runs. The gradient is the
solution of a linear recurrence of its own, which is solved, and certified, in the same way.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from elman.ops.forms import first_problem
from elman.ops.state import leaves, with_leaves
from elman.shapes import Lengths, Sequence, State

MAX_ITERATIONS = 64  # beyond, a sequential form is surely faster
ROUNDING_ULPS = 16  # residuals below so many units in the last place count as rounding

Parts = list[Tensor]
Jacobians = list[Parts]  # jacobians[p][q]: ∂(new part p) / ∂(old part q), of the same unit (B, T, H)


class Certificate(NamedTuple):
    """The residual max |h_t - f(h_{t-1}, x_t)| after the last iteration, and the tolerance it must not exceed."""

    iterations: int
    residual: float
    tolerance: float

    @property
    def holds(self) -> bool:
        return self.residual <= self.tolerance

    def __str__(self) -> str:
        text = f"residual {self.residual:.1e} after {self.iterations} iterations (tolerance {self.tolerance:.1e})"
        return text if self.holds else f"{text}: the sequential form ran instead"


_latest: dict[str, Certificate] = {}


def latest() -> dict[str, Certificate]:
    """The certificates of the last call: of its "states" and, after backward, of its "gradients"."""
    return dict(_latest)


def obstacle(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """Why this form cannot run."""
    state = leaves(cell.initial_state(1))
    alike = all(part.is_floating_point() and part.shape == state[0].shape for part in state)
    dtypes = {one.dtype for one in (x, *cell.parameters(), *state)}
    half = torch.is_autocast_enabled(x.device.type) or not dtypes <= {torch.float32, torch.float64}
    norms = any(isinstance(module, nn.LayerNorm) for module in cell.modules())
    problems = {
        "the batch is empty": x.numel() == 0,
        "parts of the state are not real, or differ in width: the Jacobian has no diagonal": not alike,
        "in half precision rounding errors exceed the residuals that a certificate bounds": half,
        "layer norm couples all units: with a diagonal Jacobian the iteration never converged": norms,
    }
    return first_problem(problems)


def drawback(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    return "Newton iteration runs only on request: no measurement found it faster"


def title(cell: Any, x: Sequence, lengths: Lengths | None) -> str:
    return "all steps in parallel, by Newton iteration"


def run(cell: Any, x: Sequence, state: State, lengths: Lengths | None) -> tuple[Sequence, State]:
    """The reference's result within the certificate's tolerance, or that of the best sequential form; see `latest`."""
    from elman.ops.scan.chunked import last_state
    from elman.recurrence import FORMS

    drive, initial = cell.drive(x), leaves(state)
    _latest.clear()
    with torch.no_grad():
        states, jacobians, certificate = solve(cell, drive, state)
        _latest["states"] = _confirmed(certificate, cell, drive, states, state)
    if not _latest["states"].holds:
        return FORMS[FORMS.favourite(cell, x, lengths, but="newton").form].run(cell, x, state, lengths)
    before = [_shifted(first, part) for first, part in zip(initial, states, strict=True)]
    if torch.is_grad_enabled():
        before = [part if part.requires_grad else part.requires_grad_() for part in before]
    outputs, *news = _steps(cell, drive, before, state)
    if torch.is_grad_enabled() and any(part.requires_grad for part in (outputs, *news)):
        outputs, *news = _Adjoint.apply(jacobians, *before, outputs, *news)
    finals = [last_state(part, first, lengths) for part, first in zip(news, initial, strict=True)]
    return outputs, with_leaves(state, finals)


def solve(cell: Any, drive: Tensor, state: State) -> tuple[Parts, Jacobians, Certificate]:
    """All states (B, T, H), one tensor for each part, with the Jacobians there and the certificate."""
    from elman.ops.scan import linear_scan

    initial = leaves(state)
    constant = [first.unsqueeze(1).expand(-1, drive.shape[1], *first.shape[1:]) for first in initial]
    _, *states = _steps(cell, drive, constant, state)  # the first guess: each step from the initial state
    for iteration in range(MAX_ITERATIONS + 1):
        before = [_shifted(first, part) for first, part in zip(initial, states, strict=True)]
        news, jacobians = linearize(cell, drive, before, state)
        certificate = _certificate(iteration, news, states, floor=1.0)
        if certificate.holds or not certificate.residual < torch.inf:
            break
        changes: dict[int, Tensor] = {}  # of old states of the parts solved so far; the LSTM's c is first
        for p in reversed(range(len(news))):
            inputs = news[p] - jacobians[p][p] * before[p]
            for q, change in changes.items():
                inputs = inputs + jacobians[p][q] * change
            solved, _ = linear_scan(jacobians[p][p], inputs, initial[p])
            changes[p] = _shifted(torch.zeros_like(initial[p]), solved - states[p])
            states[p] = solved
    return states, jacobians, certificate


def _confirmed(certificate: Certificate, cell: Any, drive: Tensor, states: Parts, state: State) -> Certificate:
    """The certificate, unless the last step by itself differs: if steps mix rows, are random or count calls."""
    before = [_shifted(first, part)[:, -1] for first, part in zip(leaves(state), states, strict=True)]
    _, new = cell.step(drive[:, -1], with_leaves(state, before))
    pairs = list(zip(leaves(new), [part[:, -1] for part in states], strict=True))
    sizes = [torch.stack([(alone - batched).abs().max(), alone.abs().max()]) for alone, batched in pairs]
    error, scale = torch.stack(sizes).amax(0).tolist()
    tolerance = torch.finfo(drive.dtype).eps ** 0.5 * max(scale, 1.0)  # matmuls of other shapes sum in another order
    return certificate if error <= tolerance else certificate._replace(residual=error)


def linearize(cell: Any, drive: Tensor, before: Parts, state: State) -> tuple[Parts, Jacobians]:
    """f and the diagonal of its Jacobian at all steps, clamped to [-1, 1], so that the scan cannot explode."""
    with torch.enable_grad(), _DiagonalProducts():
        olds = [old.detach().requires_grad_() for old in before]
        _, *news = _steps(cell, drive.detach(), olds, state)
    jacobians = []
    for new in news:
        row = torch.autograd.grad(new, olds, torch.ones_like(new), retain_graph=True, materialize_grads=True)
        jacobians.append([diagonal.clamp(-1, 1) for diagonal in row])
    return [new.detach() for new in news], jacobians


class _DiagonalProducts(TorchFunctionMode):
    """Gives F.linear by square blocks the gradient of its diagonal alone, so that one backward pass yields diag J."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.linear or args[1].shape[0] % args[1].shape[1]:
            return func(*args, **(kwargs or {}))
        past, weight = args[0], args[1]
        diagonal = weight.unflatten(0, (-1, weight.shape[1])).diagonal(dim1=1, dim2=2)
        zero = (past - past.detach()).unsqueeze(-2) * diagonal  # with the gradient `diagonal`
        return func(past.detach(), *args[1:], **(kwargs or {})) + zero.flatten(-2)


class _Adjoint(torch.autograd.Function):
    """The identity forward. Backward solves g_t = own_t + J_{t+1}ᵀ g_{t+1}: the gradient through all later steps.

    `tensors`: the states before each step, the outputs, and the states after each step.
    """

    @staticmethod
    def forward(ctx, jacobians, *tensors):  # type: ignore[no-untyped-def]
        ctx.jacobians = jacobians
        ctx.save_for_backward(*tensors)
        return tuple(tensor.view_as(tensor) for tensor in tensors[len(jacobians) :])

    @staticmethod
    @once_differentiable
    def backward(ctx, d_outputs, *own):  # type: ignore[no-untyped-def]
        from elman.ops.scan import linear_scan

        parts = len(own)
        before, results = ctx.saved_tensors[:parts], ctx.saved_tensors[parts:]
        later = [[_next(one) for one in row] for row in ctx.jacobians]  # J_{t+1} at position t
        totals = list(own)
        for iteration in range(len(own[0][0]) + 1):  # T iterations are always enough
            back = torch.autograd.grad(results, before, (d_outputs, *totals), retain_graph=True, allow_unused=True)
            targets = [one if past is None else one + _next(past) for one, past in zip(own, back, strict=True)]
            certificate = _latest["gradients"] = _certificate(iteration, targets, totals)
            if certificate.holds or not certificate.residual < torch.inf:
                break
            changes: dict[int, Tensor] = {}
            for p in range(parts):
                inputs = targets[p] - later[p][p] * _next(totals[p])
                for q, change in changes.items():
                    inputs = inputs + later[q][p] * change
                solved, _ = linear_scan(later[p][p], inputs, torch.zeros_like(inputs[:, 0]), reverse=True)
                changes[p] = _next(solved - totals[p])
                totals[p] = solved
        return None, *[None] * parts, d_outputs, *totals


def _steps(cell: Any, drive: Tensor, before: Parts, state: State) -> Parts:
    """The cell's step at all positions as one batch of B·T rows: outputs and the parts of the new states."""
    batch, time = drive.shape[:2]
    output, new = cell.step(drive.flatten(0, 1), with_leaves(state, [part.flatten(0, 1) for part in before]))
    return [part.unflatten(0, (batch, time)) for part in (output, *leaves(new))]


def _certificate(iteration: int, targets: Parts, guesses: Parts, floor: float = 0.0) -> Certificate:
    residual = torch.stack([(target - guess).abs().max() for target, guess in zip(targets, guesses, strict=True)]).max()
    scale = torch.stack([target.abs().max() for target in targets]).max().clamp(min=floor)
    residual, scale = torch.stack([residual, scale]).tolist()  # one synchronisation with the device
    return Certificate(iteration, residual, ROUNDING_ULPS * torch.finfo(targets[0].dtype).eps * scale)


def _shifted(first: Tensor, states: Tensor) -> Tensor:
    """The state before each step."""
    return torch.cat([first.unsqueeze(1), states[:, :-1]], 1)


def _next(states: Tensor) -> Tensor:
    """The value of step t + 1 at position t; zero after the last step."""
    return torch.cat([states[:, 1:], torch.zeros_like(states[:, :1])], 1)
