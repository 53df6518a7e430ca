"""Taps: named intermediate values (activation hooks) that can be recorded or edited.

`keep = tap("gate.forget", torch.sigmoid(...))` returns its value unchanged; without listeners it costs one look-up.
A site is scope and name, `layers.0.lstm.gate.forget`; a pattern may add times: `@5`, `@2:6`. Models open a scope for
each layer. Loops over time open `stepping`, so that values of single steps are concatenated along the time axis (batch,
time, ...) like those of whole sequences. Listeners run in the order in which they were opened: a recorder inside of an
edit records the edited value. Code that torch.compile has compiled has no taps.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from elman.errors import RecordingError, brief, nearest

T = TypeVar("T")
WARN_BYTES = 2**30  # recorded before a warning

_listeners: ContextVar[tuple["_Listener", ...]] = ContextVar("listeners", default=())
_scope: ContextVar[str] = ContextVar("scope", default="")
_stepping: ContextVar[bool] = ContextVar("stepping", default=False)

Edit = float | Tensor | Callable[[Tensor], Tensor]


def tap(name: str, value: Tensor) -> Tensor:
    """Passes a value to all listeners and returns it, edited if one edits."""
    if torch.compiler.is_dynamo_compiling() or not (listeners := _listeners.get()):
        return value
    site = f"{_scope.get()}.{name}".lstrip(".")
    for listener in listeners:
        value = listener.receive(site, value, _stepping.get())
    return value


def listening() -> bool:
    """Whether anything records or edits: then the reference forms must run, in which every tap fires."""
    return not torch.compiler.is_dynamo_compiling() and bool(_listeners.get())


@contextmanager
def setting(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Inside, the context variable has this value."""
    if torch.compiler.is_dynamo_compiling():  # which would break its graph here
        yield
        return
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def scope(name: str) -> AbstractContextManager[None]:
    """Prefixes the sites of all taps inside with `name`."""
    return setting(_scope, f"{_scope.get()}.{name}".lstrip("."))


def stepping(on: bool = True) -> AbstractContextManager[None]:
    """Inside, values have no time axis and each tap is the next step; `on=False` inside a step that runs a sequence."""
    return setting(_stepping, on)


@contextmanager
def record(*patterns: str) -> Iterator["Recording"]:
    """Records the values of all sites that match: `with elman.record("*.gate.*") as seen: model(x)`, then
    `seen["layers.0.lstm.gate.forget"]` is a tensor (batch, time, units).

    A pattern may name times, `hidden@-1`. One that matched nothing is an error at the end of the block, which lists the
    sites that were seen.
    """
    recording = Recording(patterns)
    with setting(_listeners, (*_listeners.get(), recording)):
        yield recording
    recording.finish()


@contextmanager
def edit(changes: Mapping[str, Edit]) -> Iterator[None]:
    """Replaces values by a number (clamp), a tensor (activation patching) or a function of the value, at `name@times`:
    `with elman.edit({"layers.0.lstm.gate.forget@3": 1.0}): model(x)`.

    A patch has shape (batch, time, ...) and begins at the first edited time, so a recording of another run fits.
    """
    editing = _Editing(changes)
    with setting(_listeners, (*_listeners.get(), editing)):
        yield
    editing.finish()


class _Pattern(NamedTuple):
    """`glob@first:last`: sites and times."""

    glob: str
    times: slice | None

    @classmethod
    def parse(cls, text: str) -> "_Pattern":
        glob, at, time = text.partition("@")
        if not at:
            return cls(glob, None)
        try:
            start, colon, stop = time.partition(":")
            if colon:
                return cls(glob, slice(int(start) if start else None, int(stop) if stop else None))
            first = int(time)
            return cls(glob, slice(first, first + 1 if first != -1 else None))
        except ValueError:
            raise RecordingError(f"{text!r}: a time is written @5, @-1 or @2:6") from None

    @property
    def counts_from_the_end(self) -> bool:
        return self.times is not None and min(self.times.start or 0, self.times.stop or 0) < 0

    def inside(self, positions: Tensor, length: int | None = None) -> Tensor:
        """The mask of selected positions; those that may be selected while the length is unknown."""
        if self.times is None or (self.counts_from_the_end and length is None):
            return torch.ones_like(positions, dtype=torch.bool)
        start, stop = self.times.start or 0, self.times.stop
        if length is not None:
            start, stop, _ = self.times.indices(length)
        return (positions >= start) & (positions < stop) if stop is not None else positions >= start


class _Listener:
    """Base of recording and editing: patterns, sites seen so far, and the time each has reached."""

    def __init__(self, patterns: tuple[str, ...]):
        if wrong := [text for text in patterns if not isinstance(text, str)]:
            raise RecordingError(f"a site is a text, not {brief(wrong[0])}; several are given one by one: 'a', 'b'")
        self.patterns = {text: _Pattern.parse(text) for text in patterns}
        self.fired: set[str] = set()
        self.steps: dict[str, int] = {}  # site -> time steps so far
        self._matching: dict[str, list[str]] = {}  # site -> patterns that match (cached)

    def receive(self, site: str, value: Tensor, step: bool) -> Tensor:
        if site not in self._matching:
            known = self.patterns.items()
            self._matching[site] = [text for text, pattern in known if fnmatchcase(site, pattern.glob)]
        matching = self._matching[site]
        sequence = value.unsqueeze(1) if step else value
        start = self.steps.get(site, 0)
        self.steps[site] = start + sequence.shape[1]
        if not matching:
            return value
        sequence = self.match(matching, site, sequence, start)
        return sequence.squeeze(1) if step else sequence

    def match(self, matching: list[str], site: str, value: Tensor, start: int) -> Tensor:
        raise NotImplementedError

    def _matched(self, text: str) -> list[str]:
        return [site for site in sorted(self.steps) if fnmatchcase(site, self.patterns[text].glob)]

    def finish(self) -> None:
        for text, pattern in self.patterns.items():
            if text not in self.fired:
                known = sorted(self.steps)
                for site in self._matched(text):
                    raise RecordingError(f"{text!r}: {site} has {self.steps[site]} time steps, none of them selected")
                found = f"; sites seen: {', '.join(known)}" if known else "; no model of elman ran inside"
                raise RecordingError(f"no site matched {text!r}{nearest(pattern.glob, known)}{found}")


class Recording(_Listener):
    """Recorded values by site: tensors (batch, time, ...), detached, on the CPU, in float32; padding included."""

    def __init__(self, patterns: tuple[str, ...]):
        super().__init__(patterns)
        self._pieces: dict[str, list[Tensor]] = {}
        self._positions: dict[str, list[Tensor]] = {}  # of pieces, for sites recorded at some times only
        self._bytes = 0

    def match(self, matching: list[str], site: str, value: Tensor, start: int) -> Tensor:
        """Keep a detached copy of the value."""
        pieces = self._pieces.setdefault(site, [])
        if pieces and pieces[0].shape[0] != value.shape[0]:
            raise RecordingError(f"{site}: a recording holds one batch, but the batch size changed to {value.shape[0]}")
        whole = value.detach()
        if self._timed(matching):
            positions = torch.arange(start, start + value.shape[1])
            positions = positions[self._selected(matching, positions)]
            whole = whole[:, (positions - start).to(value.device)]
            self._positions.setdefault(site, []).append(positions)
        piece = whole.to("cpu", torch.float32, copy=True)
        pieces.append(piece)
        before, self._bytes = self._bytes, self._bytes + piece.nbytes
        if before < WARN_BYTES <= self._bytes:
            warnings.warn(
                f"the recording passed {WARN_BYTES / 2**30:.0f} GiB; narrow the pattern or the times", stacklevel=2
            )
        return value

    def _timed(self, matching: Iterable[str]) -> bool:
        """Whether all patterns that match a site select times."""
        return all(self.patterns[text].times is not None for text in matching)

    def _selected(self, matching: Iterable[str], positions: Tensor, length: int | None = None) -> Tensor:
        masks = [self.patterns[text].inside(positions, length) for text in matching]
        return torch.stack(masks).any(0)

    def finish(self) -> None:
        """Raise an error for patterns that matched no site or no time."""
        for text in self.patterns:
            for site in self._matched(text):
                if self._selected([text], torch.arange(self.steps[site]), self.steps[site]).any():
                    self.fired.add(text)
        super().finish()

    def sites(self) -> list[str]:
        """Names of all recorded sites."""
        return list(self._pieces)

    def __getitem__(self, site: str) -> Tensor:
        if site not in self._pieces:
            raise RecordingError(f"{site!r} was not recorded{nearest(site, self._pieces)}")
        matching = [text for text in self.patterns if site in self._matched(text)]
        found = torch.cat(self._pieces[site], dim=1)
        if not self._timed(matching):
            return found
        return found[:, self._selected(matching, torch.cat(self._positions[site]), self.steps[site])]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pieces)


class _Editing(_Listener):
    def __init__(self, changes: Mapping[str, Edit]):
        if not isinstance(changes, Mapping):
            raise RecordingError(f"edits are given as {{site: value}}, not {brief(changes)}")
        super().__init__(tuple(changes))
        self.changes = dict(changes)
        for text, pattern in self.patterns.items():
            if pattern.counts_from_the_end:
                raise RecordingError(f"{text!r}: an edit counts time from the start, since the length is not known yet")

    def match(self, matching: list[str], site: str, value: Tensor, start: int) -> Tensor:
        positions = torch.arange(start, start + value.shape[1], device=value.device)
        for text in matching:
            inside = self.patterns[text].inside(positions)
            if inside.any():
                self.fired.add(text)
                new = self._changed(text, site, value, positions, inside)
                value = torch.where(inside.view(1, -1, *[1] * (value.dim() - 2)), new, value)
        return value

    def _changed(self, text: str, site: str, value: Tensor, positions: Tensor, inside: Tensor) -> Tensor:
        change = self.changes[text]
        new = change(value) if callable(change) else change
        try:
            new = torch.as_tensor(new).to(value.device, value.dtype)
        except (TypeError, ValueError, RuntimeError):
            given = "a function that returns " * callable(change) + brief(new)
            raise RecordingError(
                f"{text!r}: the new value is a number, a tensor or a function of the old value, not {given}"
            ) from None
        if not callable(change) and new.dim() == value.dim() and new.shape[1] != 1:
            times = self.patterns[text].times
            index = positions - (times.start or 0 if times else 0)
            if index[inside].max() >= new.shape[1]:
                last = positions[inside].max()
                raise RecordingError(f"{text!r}: a patch of {new.shape[1]} time steps ends before time {last}")
            new = new[:, index.clamp(0, new.shape[1] - 1)]
        try:
            return new.expand_as(value)
        except RuntimeError:
            shapes = f"{tuple(new.shape)} for {site} of shape {tuple(value.shape)} (batch, time, ...)"
            raise RecordingError(f"{text!r}: the new value has shape {shapes}") from None
