"""The laws of sequence layers, each written once.

Tests hold every registered layer to them. `examine` holds layers of users to them before these are trained: the scores
of a layer that breaks a law would not be valid.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from elman.errors import ConfigError, ElmanError, line_of
from elman.layers.base import LAYERS, SequenceLayer
from elman.ops.state import leaves, map_state, take_rows, tensors
from elman.recurrence import using
from elman.shapes import State

OWN = ("elman", "torch")  # packages whose layers the tests hold to the laws
GIVEN = "elman_own."  # prefix of the names of modules that were read from users' files
LENGTHS, CUT = (6, 4, 1), 4  # of the sequences that users' layers are checked on
TOLERANCE = 1e-3  # relative to the largest value: far above rounding errors of single precision

ALL_PARTS = (
    "A state of several parts begins with all of them: in initial_state(batch), "
    "`return {}(self.zeros(batch), self.zeros(batch))`"
)

Run = Callable[[Any, Tensor, State], tuple[Tensor, State]]
"""A way to compute outputs and final state from a layer, inputs and initial state."""


class Trial(NamedTuple):
    """A layer and small random inputs to check a law on."""

    layer: Any  # a sequence layer, or something with the same methods
    x: Tensor  # (batch, time, input_size)
    other: Tensor  # other values of the same shape
    state: State  # one that has seen inputs, so that a dropped or forgotten one shows
    lengths: Tensor  # (batch,): real positions of each row
    cut: int  # a position within the sequence

    @property
    def causal(self) -> bool:
        return getattr(self.layer, "causal", True)

    def real(self) -> Tensor:
        return real_positions(self.lengths, self.x.shape[1])

    def forward(self, layer: Any, x: Tensor, state: State) -> tuple[Tensor, State]:
        return layer(x, state, self.lengths)

    def results(self, run: Run) -> "Results":
        """Of all positions."""
        return results(self.layer, run, self.x, self.state)

    def real_results(self, run: Run) -> "Results":
        """Of positions that are not padding."""
        return results(self.layer, run, self.x, self.state, self.real())


class Law(NamedTuple):
    violation: str  # what a user reads whose layer breaks it
    check: Callable[[Trial], tuple[Any, Any]]  # two values that are equal by its docstring: results, states or tensors
    causal: bool  # bidirectional layers need not keep it
    exact: bool  # equal to the bit, not up to rounding


LAWS: dict[str, Law] = {}


class BrokenLaw(Exception):
    """A law is broken in a way that its own message describes best."""


def law(name: str, violation: str, causal: bool = False, exact: bool = False) -> Callable[[Any], Any]:
    """Adds a check, whose docstring states the law, to the laws."""

    def add(check: Callable[[Trial], tuple[Any, Any]]) -> Callable[[Trial], tuple[Any, Any]]:
        LAWS[name] = Law(violation, check, causal, exact)
        return check

    return add


@law("contract", "its outputs or states have other sizes or types than it promises")
def _contract(trial: Trial) -> tuple[Any, Any]:
    """Outputs are finite and (batch, time, output_size); a state keeps its structure, batch size and types."""
    layer, (batch, time, _) = trial.layer, trial.x.shape
    before = layer.initial_state(batch)
    outputs, after = layer(trial.x, before)
    if outputs.shape != (batch, time, layer.output_size):
        raise BrokenLaw(f"it has {layer.output_size} units, but an output has the shape {tuple(outputs.shape[2:])}")
    if not all(bool(torch.isfinite(part).all()) for part in (outputs, *leaves(after))):
        raise BrokenLaw("it computes values that are not finite before it has learned anything")
    finals = [after]
    if trial.causal:
        output, final = layer.step(trial.x[:, 0], before)
        if output.shape != (batch, layer.output_size):
            raise BrokenLaw(f"it has {layer.output_size} units, but the output of a step has the shape {output.shape}")
        finals.append(final)
    for final in finals:
        if type(final) is not type(before):
            raise BrokenLaw(f"its state begins as {type(before).__name__} and becomes {type(final).__name__}")
        for first, last in zip(leaves(before), leaves(final), strict=True):
            if (last.dtype, last.shape[0]) != (first.dtype, batch):
                raise BrokenLaw(f"its state begins as {first.dtype} and becomes {last.dtype} ({len(last)} rows)")
    return (), ()


@law("determinism", "for the same input it computes other values: it draws them, or keeps something outside its state")
def _determinism(trial: Trial) -> tuple[Any, Any]:
    """The same input gives the same output."""
    return trial.layer(trial.x)[0], trial.layer(trial.x)[0]


@law("values", "it changes its input or the state that it was given in place", exact=True)
def _values(trial: Trial) -> tuple[Any, Any]:
    """Neither forward nor step changes its input or the state it was given: states can be kept and branched."""
    layer, x, state = trial.layer, trial.x, trial.state
    kept, kept_x = map_state(torch.clone, state), x.clone()
    again = after = kept_after = state
    with torch.no_grad():
        if trial.causal:
            _, after = layer.step(x[:, 0], state)
            kept_after = map_state(torch.clone, after)
            _, again = layer.step(x[:, 0], state)
            layer.step(x[:, -1], after)
        layer(x, after, trial.lengths)
        layer(x, state)
    return (state, x, after, again), (kept, kept_x, kept_after, kept_after)


@law("rows", "its outputs for a sequence depend on the other sequences of the batch")
def _rows(trial: Trial) -> tuple[Any, Any]:
    """Outputs of a row do not depend on other rows of the batch."""

    def alone(layer: Any, x: Tensor, state: State) -> tuple[Tensor, State]:
        found = [layer(x[[i]], take_rows(state, [i]), trial.lengths[[i]]) for i in range(len(x))]
        return torch.cat([outputs for outputs, _ in found]), _joined([final for _, final in found])

    return trial.real_results(trial.forward), trial.real_results(alone)


@law("causality", "it sees the future: later inputs change earlier outputs", causal=True)
def _causality(trial: Trial) -> tuple[Any, Any]:
    """Changing the future never changes the past."""
    changed = torch.cat([trial.x[:, : trial.cut], trial.other[:, trial.cut :]], 1)
    found, expected = (trial.layer(x, trial.state)[0][:, : trial.cut] for x in (changed, trial.x))
    return found, expected


@law("agreement", "step by step it computes other values than for the whole sequence", causal=True)
def _agreement(trial: Trial) -> tuple[Any, Any]:
    """Stepping through a sequence gives the outputs, final state and gradients of forward."""
    return trial.results(type(trial.layer).forward), trial.results(walk)


@law("initial state", "without a state it does not begin with its initial state")
def _initial_state(trial: Trial) -> tuple[Any, Any]:
    """No state means the initial state."""
    layer, x = trial.layer, trial.x
    run = walk if trial.causal else type(layer).forward
    return layer(x), run(layer, x, layer.initial_state(len(x)))


@law("cutting", "for a sequence in two pieces it computes other values than for the whole", causal=True)
def _cutting(trial: Trial) -> tuple[Any, Any]:
    """A sequence may be cut anywhere if the state is carried; gradients pass through the cut."""
    cut, lengths = trial.cut, trial.lengths

    def halves(layer: Any, x: Tensor, state: State) -> tuple[Tensor, State]:
        first, state = layer(x[:, :cut], state, lengths.clamp(max=cut))
        second, state = layer(x[:, cut:], state, (lengths - cut).clamp(min=0))
        return torch.cat([first, second], 1), state

    return trial.real_results(halves), trial.real_results(trial.forward)


@law("empty sequence", "a sequence of no inputs changes its state")
def _empty(trial: Trial) -> tuple[Any, Any]:
    """A sequence of no inputs gives no outputs and leaves the state as it is."""
    outputs = trial.x.new_zeros(len(trial.x), 0, trial.layer.output_size)
    return trial.layer(trial.x[:, :0], trial.state), (outputs, trial.state)


@law("padding", "its outputs or states for a sequence depend on the padding behind it")
def _padding(trial: Trial) -> tuple[Any, Any]:
    """Padding changes neither outputs at real positions nor the final state; a row of length 0 keeps its state."""
    padded = trial._replace(x=torch.where(trial.real().unsqueeze(-1), trial.x, trial.other))

    def unpadded(layer: Any, x: Tensor, state: State) -> tuple[Tensor, State]:
        outputs, finals = [], []
        for i, length in enumerate(trial.lengths.tolist()):
            row, final = x.new_zeros(1, 0, layer.output_size), take_rows(state, [i])
            if length:
                row, final = layer(x[[i], :length], final)
            outputs.append(nn.functional.pad(row, (0, 0, 0, x.shape[1] - length)))
            finals.append(final)
        return torch.cat(outputs), _joined(finals)

    return padded.real_results(trial.forward), padded.real_results(unpadded)


class Results(NamedTuple):
    outputs: Tensor
    state: State
    gradients: dict[str, Tensor]


@torch.enable_grad()
def results(layer: Any, run: Run, x: Tensor, state: State, real: Tensor | None = None) -> Results:
    """Outputs, final state, and the gradients of a randomly weighted sum of these with respect to input, initial state
    and parameters.

    `real` (batch, time) masks the outputs.
    """
    layer.zero_grad()
    x = x.detach().clone().requires_grad_()
    state = map_state(lambda part: part.detach().clone().requires_grad_(part.is_floating_point()), state)
    outputs, final = run(layer, x, state)
    if real is not None:
        outputs = outputs * real.unsqueeze(-1)
    parts = [outputs, *(part for part in leaves(final) if part.is_floating_point())]
    generator = torch.Generator().manual_seed(7)
    weights = [torch.randn(part.shape, generator=generator, dtype=torch.float64).to(part) for part in parts]
    weighted = [(part * weight).sum() for part, weight in zip(parts, weights, strict=True)]
    sum(weighted, start=0 * x.sum()).backward()  # where all rows are empty, nothing else may have a gradient
    given = {"x": x, **dict(tensors(state)), **dict(layer.named_parameters())}
    # a parameter that one way of computing does not reach has no gradient there; the other then must find zero
    gradients = {
        name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.clone()
        for name, leaf in given.items()
        if leaf.requires_grad
    }
    return Results(outputs.detach(), map_state(Tensor.detach, final), gradients)


def walk(layer: Any, x: Tensor, state: State) -> tuple[Tensor, State]:
    """The whole sequence by single steps."""
    outputs = []
    for inputs in x.unbind(1):
        output, state = layer.step(inputs, state)
        outputs.append(output)
    return torch.stack(outputs, 1), state


def real_positions(lengths: Tensor, time: int) -> Tensor:
    """True where a position is not padding (batch, time)."""
    return torch.arange(time, device=lengths.device) < lengths.unsqueeze(1)


def _joined(rows: list[State]) -> State:
    return map_state(lambda *parts: torch.cat(parts), *rows)


# Layers of users


def examine(model: nn.Module) -> list[str]:
    """The names of users' layers in a model; an error if one of them breaks a law."""
    found = list(_foreign_layers(model))
    for layer in found:
        if violation := broken(layer):
            raise ConfigError(f"{layer.name!r} breaks {violation}; its scores would not be valid")
    return list(dict.fromkeys(layer.name for layer in found))


def broken(layer: SequenceLayer) -> str:
    """The first law that a layer breaks and how, or an empty string."""
    weight = next(layer.parameters(), torch.zeros(()))
    random = torch.Generator().manual_seed(1)
    sequences = torch.randn(3, len(LENGTHS), max(LENGTHS), layer.input_size, generator=random).to(weight)
    x, other, before = sequences
    lengths = torch.tensor(LENGTHS, device=x.device)
    with torch.random.fork_rng([weight.device] if weight.is_cuda else []), torch.no_grad(), using("reference"):
        name = "contract"
        try:
            copy = deepcopy(layer).eval()
            if problem := _wrong_initial_state(copy, x):
                return f"the law of contract: {problem}"
            trial = Trial(copy, x, other, copy(before[:, :2])[1], lengths, CUT)
            for name, one in LAWS.items():
                if not ((one.causal and not trial.causal) or _equal(*one.check(trial))):
                    return f"the law of {name}: {one.violation}"
            return _untrainable(deepcopy(layer).train(), x)
        except BrokenLaw as problem:
            return f"the law of {name}: {problem}"
        except ElmanError:
            raise
        except Exception as problem:
            return f"the law of {name}: it fails with {type(problem).__name__}: {problem}{line_of(problem)}"


def _wrong_initial_state(layer: SequenceLayer, x: Tensor) -> str:
    """Why the initial state is not one that `step` takes and returns, or an empty string."""
    first = layer.initial_state(len(x))
    for shape in (tuple(part.shape) for part in leaves(first)):
        if shape[:1] != (len(x),):
            return f"initial_state({len(x)}) gives a part of shape {shape}; the rows of the batch come first"
    if not layer.causal:
        return ""
    try:
        _, after = layer.step(x[:, 0], first)
    except Exception as problem:
        if any(sign in str(problem) for sign in ("unpack", "Tensor' object has no", "tuple' object has no")):
            failed = f"{problem}{line_of(problem)}"
            return f"initial_state gives {_parts(first)}, from which step fails: {failed}. {ALL_PARTS.format('State')}"
        raise
    if _parts(first) != _parts(after):
        example = ALL_PARTS.format(type(after).__name__)
        return f"initial_state gives {_parts(first)}, and step {_parts(after)}. {example}"
    return ""


def _parts(state: Any) -> str:
    """A state in words: a tensor, a tuple, or a NamedTuple with its parts."""
    if isinstance(state, Tensor):
        return "one tensor"
    inner = [part if isinstance(part, str) else _parts(part) for part in getattr(state, "_fields", state)]
    return f"{type(state).__name__}({', '.join(inner)})"


@torch.enable_grad()
def _untrainable(layer: SequenceLayer, x: Tensor) -> str:
    outputs, _ = layer(x)
    if outputs.requires_grad:
        outputs.sum().backward()
    elif any(parameter.requires_grad for parameter in layer.parameters()):
        return "the law of gradients: its outputs have no gradient, so nothing in it can learn"
    return ""


def _equal(found: Any, expected: Any) -> bool:
    """Up to rounding. Gradients are compared at the scale of the largest, since some are zero but for rounding."""
    if isinstance(expected, Results):
        gradients = expected.gradients.values()
        scale = max((float(gradient.abs().max()) for gradient in gradients if gradient.numel()), default=0.0)
        pairs = zip(found.gradients.values(), gradients, strict=True)
        same = all(_close(one, other, scale) for one, other in pairs)
        return same and _equal((found.outputs, found.state), (expected.outputs, expected.state))
    return all(_close(*pair) for pair in zip(leaves(found), leaves(expected), strict=True))


def _close(found: Tensor, expected: Tensor, scale: float = 0.0) -> bool:
    found, expected = found.double(), expected.double()
    scale = max(scale, float(expected.abs().max()) if expected.numel() else 0.0, 1e-6)
    return found.shape == expected.shape and bool(((found - expected).abs() <= TOLERANCE * scale).all())


def foreign(model: nn.Module) -> bool:
    """Whether parts of a model are defined outside of this package and torch."""
    return any(_foreign_name(type(part).__module__) for part in model.modules())


def sources(model: nn.Module) -> dict[str, str]:
    """A hash of the source of each part that a user defined: of the whole file if it was given with --module; else of
    the class alone, since other lines of a script may change without any effect on the model."""
    kinds = {kind for part in model.modules() if _foreign_name((kind := type(part)).__module__)}
    found = dict(filter(None, map(_source, kinds)))
    return {name: sha256(found[name].encode()).hexdigest()[:16] for name in sorted(found)}


def _source(kind: type) -> tuple[str, str] | None:
    """Name and source of a class; nothing if it was typed at a prompt."""
    module = sys.modules.get(kind.__module__)
    try:
        if module is not None and kind.__module__.startswith(GIVEN):
            return Path(str(module.__file__)).name, inspect.getsource(module)
        return f"{kind.__module__}.{kind.__qualname__}", inspect.getsource(kind)
    except (OSError, TypeError):
        return None


def agree(before: Mapping[str, str], now: Mapping[str, str], what: str) -> None:
    """An error if the source of a user's layer has changed since a run or race began."""
    changed = [name for name in before if before[name] != now.get(name)]
    if changed:
        raise ConfigError(
            f"{', '.join(changed)}: not the same as when the {what} began, so it would mix two models under one name; "
            "put it back, or use another --run"
        )


def _foreign_name(module: str) -> bool:
    return module.partition(".")[0] not in OWN


def _foreign_layers(model: nn.Module) -> Iterable[SequenceLayer]:
    """The outermost registered layers with foreign parts."""
    if isinstance(model, SequenceLayer) and type(model) in map(LAYERS.__getitem__, LAYERS) and foreign(model):
        yield model
        return
    for part in model.children():
        yield from _foreign_layers(part)
