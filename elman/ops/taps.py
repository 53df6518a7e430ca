"""Taps: named places inside a model whose values can be recorded or edited.

`keep = tap("gate.forget", torch.sigmoid(...))` returns its value unchanged and costs one look-up while nobody listens.
A site's full name is its scope and its quantity: `layers.0.lstm.gate.forget`, with an optional time: `...@5`, `...@2:6`.
Whoever runs a layer gives the scope; whoever walks through time says where it is, so that values of single steps
are put together along the time axis (batch, time, ...) just like those of whole sequences.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from elman.errors import RecordingError, nearest

LOUD = 2**30  # bytes recorded before a warning: enough for any lecture, small beside a laptop's memory

_listeners: ContextVar[tuple["_Listener", ...]] = ContextVar("listeners", default=())
_scope: ContextVar[str] = ContextVar("scope", default="")
_stepping: ContextVar[bool] = ContextVar("stepping", default=False)

Edit = float | Tensor | Callable[[Tensor], Tensor]


def tap(name: str, value: Tensor) -> Tensor:
    """The value itself, after everyone who listens has seen (or changed) it."""
    listeners = _listeners.get()
    if not listeners:
        return value
    site = f"{_scope.get()}.{name}".lstrip(".")
    for listener in listeners:
        value = listener.hear(site, value, _stepping.get())
    return value


def listening() -> bool:
    """Whether anyone records or edits: then only the reference path, which passes every tap, may run."""
    return bool(_listeners.get())


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Everything tapped inside belongs to `name`."""
    token = _scope.set(f"{_scope.get()}.{name}".lstrip("."))
    try:
        yield
    finally:
        _scope.reset(token)


@contextmanager
def stepping() -> Iterator[None]:
    """Inside, values have no time axis: each tap is one step further."""
    token = _stepping.set(True)
    try:
        yield
    finally:
        _stepping.reset(token)


@contextmanager
def record(*patterns: str) -> Iterator["Recording"]:
    """Collect the sites that match; a pattern that matched nothing is an error when the block ends well."""
    recording = Recording(patterns)
    with _listen(recording):
        yield recording
    recording.finish()


@contextmanager
def edit(changes: Mapping[str, Edit]) -> Iterator[None]:
    """Replace values: by a number (clamp), a tensor (patch) or a function of the value; times as in `name@3`."""
    editing = _Editing(changes)
    with _listen(editing):
        yield
    editing.finish()


@contextmanager
def _listen(listener: "_Listener") -> Iterator[None]:
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


class _Listener:
    """Shared by recording and editing: which patterns there are, which sites were heard, how far each has come."""

    def __init__(self, patterns: tuple[str, ...]):
        self.patterns = {pattern: _parse(pattern) for pattern in patterns}
        self.fired: set[str] = set()
        self.heard: dict[str, int] = {}  # site -> time steps seen so far

    def hear(self, site: str, value: Tensor, step: bool) -> Tensor:
        start = self.heard.get(site, 0)
        self.heard[site] = start + (1 if step else value.shape[1])
        for pattern, (glob, times) in self.patterns.items():
            if fnmatchcase(site, glob):
                value = self.match(pattern, site, value.unsqueeze(1) if step else value, start, times)
                value = value.squeeze(1) if step else value
        return value

    def match(self, pattern: str, site: str, value: Tensor, start: int, times: slice | None) -> Tensor:
        raise NotImplementedError

    def finish(self) -> None:
        for pattern in self.patterns:
            if pattern not in self.fired:
                known = sorted(self.heard)
                glob = self.patterns[pattern][0]
                found = f"; sites passed: {', '.join(known)}" if known else "; no site was passed at all"
                raise RecordingError(f"no site matched {pattern!r}{nearest(glob, known)}{found}")


class Recording(_Listener):
    """What was seen, by site: tensors (batch, time, ...), detached, on the CPU, in float32."""

    def __init__(self, patterns: tuple[str, ...]):
        super().__init__(patterns)
        self._pieces: dict[str, list[Tensor]] = {}
        self._times: dict[str, slice | None] = {}
        self._bytes = 0

    def match(self, pattern: str, site: str, value: Tensor, start: int, times: slice | None) -> Tensor:
        self.fired.add(pattern)
        self._times[site] = times
        if len(self._pieces.get(site, [])) and self._pieces[site][0].shape[0] != value.shape[0]:
            raise RecordingError(f"{site}: a recording holds one batch, but its rows changed to {value.shape[0]}")
        piece = value.detach().to("cpu", torch.float32, copy=True)
        self._pieces.setdefault(site, []).append(piece)
        before, self._bytes = self._bytes, self._bytes + piece.nbytes
        if before < LOUD <= self._bytes:
            warnings.warn(f"the recording passed {LOUD / 2**30:.0f} GiB; narrow the pattern or the times", stacklevel=2)
        return value

    def sites(self) -> list[str]:
        return list(self._pieces)

    def __getitem__(self, site: str) -> Tensor:
        if site not in self._pieces:
            raise RecordingError(f"{site!r} was not recorded{nearest(site, self._pieces)}")
        whole = torch.cat(self._pieces[site], dim=1)
        times = self._times[site]
        return whole if times is None else whole[:, _resolve(times, whole.shape[1])]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pieces)


class _Editing(_Listener):
    def __init__(self, changes: Mapping[str, Edit]):
        super().__init__(tuple(changes))
        self.changes = dict(changes)
        for pattern, (_, times) in self.patterns.items():
            if times is not None and min(times.start or 0, times.stop if times.stop is not None else 0) < 0:
                raise RecordingError(f"{pattern!r}: an edit counts time from the start, since the end is not known yet")

    def match(self, pattern: str, site: str, value: Tensor, start: int, times: slice | None) -> Tensor:
        positions = torch.arange(start, start + value.shape[1], device=value.device)
        inside = torch.ones_like(positions, dtype=torch.bool)
        if times is not None:
            inside = positions >= (times.start or 0)
            if times.stop is not None:
                inside &= positions < times.stop
        if not inside.any():
            return value
        self.fired.add(pattern)
        change = self.changes[pattern]
        new = change(value) if callable(change) else torch.as_tensor(change, dtype=value.dtype, device=value.device)
        return torch.where(inside.view(1, -1, *[1] * (value.dim() - 2)), new, value)


def _parse(pattern: str) -> tuple[str, slice | None]:
    glob, at, time = pattern.partition("@")
    if not at:
        return glob, None
    try:
        start, colon, stop = time.partition(":")
        if colon:
            return glob, slice(int(start) if start else None, int(stop) if stop else None)
        first = int(time)
        return glob, slice(first, first + 1 if first != -1 else None)
    except ValueError:
        raise RecordingError(f"{pattern!r}: a time is written @5, @-1 or @2:6") from None


def _resolve(times: slice, length: int) -> slice:
    return slice(*times.indices(length))
