"""Which form of an operation runs: the first that can and that measurements favour, unless one is asked for."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from elman.errors import ConfigError, UnknownName


def never(*given: Any) -> None:
    """No obstacle, no drawback."""
    return None


class Form(NamedTuple):
    """One way to compute an operation; its questions are asked about what the operation was given."""

    run: Callable[..., Any]
    obstacle: Callable[..., str | None]  # why it cannot run
    drawback: Callable[..., str | None]  # why another is faster
    title: Callable[..., str]
    device: str | None = None  # where it is at home; elsewhere it runs only if asked for, and nobody speaks of it


class Choice(NamedTuple):
    form: str
    reason: str

    def __str__(self) -> str:
        return f"{self.form}: {self.reason}"


class Forms(dict[str, Form]):
    """The forms of one operation, the favourite first. What stands behind the reference runs on request only."""

    families: ClassVar[list["Forms"]] = []

    def __init__(self, operation: str, forms: dict[str, Form]):
        super().__init__(forms)
        self.operation = operation
        self.families.append(self)

    def choose(self, *given: Any) -> Choice:
        """The form that would be taken here, with the reason: what it is, or why no faster one runs.

        A form that is asked for and that this operation does not have leaves it free to choose.
        """
        if _asked in self:
            return Choice(self.taken(*given), f"{self[_asked].title(*given)}, as asked")
        return self.favourite(*given)

    def taken(self, *given: Any) -> str:
        """The same without the reason, which takes as long to say."""
        if _asked not in self:
            return self._first("", given)[0]
        problem = self[_asked].obstacle(*given)
        if problem:
            raise ConfigError(f"the {_asked} form of {self.operation} cannot run: {problem}")
        return _asked

    def favourite(self, *given: Any, but: str = "") -> Choice:
        """The form that would be taken if none were asked for, `but` a certain one."""
        name, problems = self._first(but, given)
        return Choice(name, (name == "reference" and "; ".join(problems)) or self[name].title(*given))

    def _first(self, but: str, given: tuple[Any, ...]) -> tuple[str, Iterable[str]]:
        """The first form without a problem, and the problems of those before it."""
        device = next(part.device.type for part in given if isinstance(part, Tensor))
        problems: dict[str, None] = {}
        for name, form in self.items():
            if name == but or form.device not in (None, device):
                continue
            problem = form.drawback(*given) or form.obstacle(*given)  # the former is quick to tell
            if not problem:
                return name, problems
            problems[problem] = None
        raise AssertionError(f"the reference form of {self.operation} always runs")

    def explain(self, *given: Any) -> str:
        """Which form runs and why: "vendor: oneDNN LSTM", "reference: a recorder is listening"."""
        return str(self.choose(*given))

    def that_can_run(self, *given: Any) -> list[str]:
        """What tests and benchmarks compare."""
        return [name for name, form in self.items() if not form.obstacle(*given)]


_asked = "auto"


def asked() -> str:
    """The form that `using` asks for: "auto" where nobody does."""
    return _asked


@contextmanager
def using(form: str) -> Iterator[None]:
    """For tests and benchmarks: this form of every operation that has one of this name, in the whole process.

    Where it cannot run, the operation raises an error with the reason.
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
