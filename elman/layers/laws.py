"""What every layer promises, tried on layers that others wrote: scores of one that breaks it would not be true."""

import inspect
import sys
from collections.abc import Iterable, Mapping
from copy import deepcopy
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor, nn

from elman.errors import ConfigError, ElmanError, line_of
from elman.layers.base import LAYERS, SequenceLayer
from elman.ops.state import take_rows, tensors
from elman.recurrence import using
from elman.shapes import State

OWN = ("elman", "torch")  # packages whose layers have been tried already
GIVEN = "elman_own."  # how names begin of modules that were read from files that someone gave
ROWS, TIME, CUT = 3, 6, 4
CLOSE = 1e-3  # share of the largest number: far above what single precision rounds away


def foreign(model: nn.Module) -> bool:
    """Whether there are parts of others in it."""
    return any(_foreign_name(type(part).__module__) for part in model.modules())


def examine(model: nn.Module) -> list[str]:
    """The names of layers with parts of others, each of which keeps all laws; else whoever wrote it is told."""
    found = list(_foreign_layers(model))
    for layer in found:
        told = broken(layer)
        if told:
            raise ConfigError(f"{layer.name!r} breaks a law, and its scores would not be true: {told}")
    return list(dict.fromkeys(layer.name for layer in found))


def sources(model: nn.Module) -> dict[str, str]:
    """Where parts of others come from, and what tells one text of these from another: of a file that was given for them
    all of it; else of their classes, since a script changes in much that is no equation."""
    kinds = {kind for part in model.modules() if _foreign_name((kind := type(part)).__module__)}
    found = dict(filter(None, map(_source, kinds)))
    return {name: sha256(found[name].encode()).hexdigest()[:16] for name in sorted(found)}


def _source(kind: type) -> tuple[str, str] | None:
    """A name and the text; none of what was typed in."""
    module = sys.modules.get(kind.__module__)
    try:
        if module is not None and kind.__module__.startswith(GIVEN):
            return Path(str(module.__file__)).name, inspect.getsource(module)
        return f"{kind.__module__}.{kind.__qualname__}", inspect.getsource(kind)
    except (OSError, TypeError):
        return None


def agree(before: Mapping[str, str], now: Mapping[str, str], what: str) -> None:
    """Whoever goes on with something has the equations that it began with."""
    changed = [name for name in before if before[name] != now.get(name)]
    if changed:
        raise ConfigError(
            f"{', '.join(changed)}: not the same as when the {what} began, so it would mix two models under one name; "
            "put it back, or give another --run"
        )


def _foreign_name(module: str) -> bool:
    return module.partition(".")[0] not in OWN


def _foreign_layers(model: nn.Module) -> Iterable[SequenceLayer]:
    """From outside; not those inside of such layers."""
    if isinstance(model, SequenceLayer) and _registered(model) and foreign(model):
        yield model
        return
    for part in model.children():
        yield from _foreign_layers(part)


def _registered(layer: SequenceLayer) -> bool:
    name = str(getattr(layer, "name", ""))
    return name in LAYERS and LAYERS[name] is type(layer)


def broken(layer: SequenceLayer) -> str:
    """The first law that it breaks, or nothing."""
    weight = next(layer.parameters(), torch.zeros(()))
    random = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, TIME, layer.input_size, generator=random).to(weight)
    other = torch.randn(ROWS, TIME, layer.input_size, generator=random).to(weight)
    devices = [weight.device] if weight.is_cuda else []
    with torch.random.fork_rng(devices), torch.no_grad(), using("reference"):
        try:
            return _broken(deepcopy(layer).eval(), x, other) or _learning(deepcopy(layer).train(), x)
        except ElmanError:
            raise
        except Exception as problem:
            return f"it fails with {type(problem).__name__}: {problem}{line_of(problem)}"


def _broken(layer: SequenceLayer, x: Tensor, other: Tensor) -> str:
    outputs, state = layer(x)
    if outputs.shape != (ROWS, TIME, layer.output_size):
        made = tuple(outputs.shape[2:])
        return f"it has {layer.output_size} units, but an output has the shape {made}"
    if not all(bool(torch.isfinite(part).all()) for part in (outputs, *_parts(state))):
        return "it gives numbers that are not finite, before it has learned anything"
    again, _ = layer(x)
    if not _same(again, outputs):
        return "asked again it gives other numbers: it draws them, or keeps something outside of its state"
    alone, _ = layer(x[1:2])
    if not _same(alone, outputs[1:2]):
        return "what it gives for a text depends on the texts beside it in the batch"
    return (_one_way(layer, x, other, outputs, state) if layer.causal else "") or _padded(layer, x, other)


def _one_way(layer: SequenceLayer, x: Tensor, other: Tensor, outputs: Tensor, state: State) -> str:
    changed, _ = layer(torch.cat([x[:, :CUT], other[:, CUT:]], 1))
    if not _same(changed[:, :CUT], outputs[:, :CUT]):
        return "it sees the future: what comes later changes what it gives before"
    steps, past = [], layer.initial_state(ROWS)
    kinds = [part.dtype for part in _parts(past)]
    for moment in x.unbind(1):
        output, past = layer.step(moment, past)
        steps.append(output)
    if not (_same(torch.stack(steps, 1), outputs) and _alike(past, state)):
        return "step by step it gives other numbers than for the whole text: only the state may carry the past"
    if [part.dtype for part in _parts(past)] != kinds:
        return "its state goes on in another type than it begins with"
    first, past = layer(x[:, :CUT])
    second, past = layer(x[:, CUT:], past)
    if not (_same(torch.cat([first, second], 1), outputs) and _alike(past, state)):
        return "for a text in two pieces it gives other numbers than for the whole: only the state may carry the past"
    return ""


def _learning(layer: SequenceLayer, x: Tensor) -> str:
    with torch.enable_grad():
        outputs, _ = layer(x)
        if outputs.requires_grad:
            outputs.sum().backward()
        elif any(one.requires_grad for one in layer.parameters()):
            return "what it gives has no gradient, so nothing in it can learn"
    return ""


def _padded(layer: SequenceLayer, x: Tensor, other: Tensor) -> str:
    lengths = torch.tensor([TIME, CUT, 1], device=x.device)
    outputs, ends = layer(torch.where(_beyond(lengths), other, x), None, lengths)
    for row, length in enumerate(lengths.tolist()):
        here = slice(row, row + 1)
        alone, end = layer(x[here, :length])
        if not (_same(outputs[here, :length], alone) and _alike(take_rows(ends, here), end)):
            return "what it gives for a text depends on the padding behind it"
    return ""


def _beyond(lengths: Tensor) -> Tensor:
    """True at padding (rows, time, 1)."""
    return (torch.arange(TIME, device=lengths.device) >= lengths.unsqueeze(1)).unsqueeze(-1)


def _parts(state: State) -> list[Tensor]:
    return [part for _, part in tensors(state)]


def _alike(found: State, expected: State) -> bool:
    return all(_same(*pair) for pair in zip(_parts(found), _parts(expected), strict=True))


def _same(found: Tensor, expected: Tensor) -> bool:
    found, expected = found.double(), expected.double()
    size = float(expected.abs().max()) if expected.numel() else 0.0
    return found.shape == expected.shape and bool(((found - expected).abs() <= CLOSE * max(size, 1e-6)).all())
