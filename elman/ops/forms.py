"""Dispatch: an operation has several implementations (forms); the first supported one that is fastest here runs."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from elman.errors import ConfigError, UnknownName
from elman.ops.taps import listening
from elman.ops.transforms import transformation

WATCHED = "a recorder is listening"


class Form(NamedTuple):
    """One implementation of an operation. `title`, `obstacle` and `drawback` take the operation's arguments."""

    run: Callable[..., Any]
    title: str | Callable[..., str]
    obstacle: Callable[..., str | None] = lambda *args: None  # the reason why it is not supported
    drawback: Callable[..., str | None] = lambda *args: None  # the reason why another form is faster
    device: str | None = None  # the device type it is for; on others it runs, and is mentioned, only on request

    def titled(self, *args: Any) -> str:
        return self.title if isinstance(self.title, str) else self.title(*args)


class Choice(NamedTuple):
    form: str
    reason: str

    def __str__(self) -> str:
        return f"{self.form}: {self.reason}"


class Forms(dict[str, Form]):
    """The forms of one operation by preference. Those behind the reference run on request only.

    While a recorder listens the reference runs, because in it alone every tap fires; also under torch.export and
    torch.func, which need plain operations.
    """

    families: ClassVar[list["Forms"]] = []

    def __init__(self, operation: str, forms: dict[str, Form]):
        super().__init__(forms)
        self.operation = operation
        self.families.append(self)

    def choose(self, *args: Any) -> Choice:
        """The form that runs here, with the reason: its title, or why no faster one is supported.

        A request (`using`) for a form that this operation does not have is ignored.
        """
        if _asked in self:
            return Choice(self.taken(*args), f"{self[_asked].titled(*args)}, as asked")
        return self.favourite(*args)

    def taken(self, *args: Any) -> str:
        """The name of the form that runs; faster than `choose`, which also builds the reason."""
        if _asked not in self:
            return self._first("", args)[0]
        if problem := self._obstacle(_asked, args):
            raise ConfigError(f"the {_asked} form of {self.operation} cannot run: {problem}")
        return _asked

    def favourite(self, *args: Any, but: str = "") -> Choice:
        """The form that runs without a request; never `but`."""
        name, problems = self._first(but, args)
        return Choice(name, (name == "reference" and "; ".join(problems)) or self[name].titled(*args))

    def _first(self, but: str, args: tuple[Any, ...]) -> tuple[str, Iterable[str]]:
        """The first form without obstacle or drawback, and the reasons against those before it."""
        if problem := only_reference():
            return "reference", [problem]
        device = next(part.device.type for part in args if isinstance(part, Tensor))
        problems: dict[str, None] = {}
        for name, form in self.items():
            if name == but or form.device not in (None, device):
                continue
            problem = form.drawback(*args) or form.obstacle(*args)  # the drawback is cheaper to compute
            if not problem:
                return name, problems
            problems[problem] = None
        raise AssertionError(f"the reference form of {self.operation} always runs")

    def _obstacle(self, name: str, args: tuple[Any, ...]) -> str | None:
        return (name != "reference" and only_reference()) or self[name].obstacle(*args)

    def explain(self, *args: Any) -> str:
        """Which form runs and why: "vendor: oneDNN LSTM", "reference: a recorder is listening"."""
        return str(self.choose(*args))

    def that_can_run(self, *args: Any) -> list[str]:
        """All supported forms, for tests and benchmarks."""
        return [name for name in self if not self._obstacle(name, args)]


def only_reference() -> str | None:
    """The reason why the reference runs whatever the arguments are."""
    return WATCHED if listening() else transformation()


def first_problem(problems: dict[str, bool]) -> str | None:
    """The first reason that holds."""
    return next((problem for problem, holds in problems.items() if holds), None)


_asked = "auto"


def asked() -> str:
    """The form that `using` requests; "auto" by default."""
    return _asked


@contextmanager
def using(form: str) -> Iterator[None]:
    """For tests and benchmarks: runs this form of every operation that has it, in the whole process.

    Where it is not supported, the operation raises an error with the reason.
    """
    global _asked  # noqa: PLW0603
    if form != "auto" and not any(form in family for family in Forms.families):
        known = dict.fromkeys(name for family in Forms.families for name in family)
        raise UnknownName("form of an operation", form, ["auto", *known])
    before, _asked = _asked, form
    try:
        yield
    finally:
        _asked = before
