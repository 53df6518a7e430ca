"""Running a cell over a sequence: one definition, several forms, and a dispatcher that can say which one and why.

`recur(cell, x, state, lengths)` takes the first form that can run and that measurements favour; `explain` says which.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from elman.errors import ConfigError, UnknownName
from elman.ops.recurrence import generated, reference, vendor
from elman.ops.recurrence.vendor import VendorCall
from elman.shapes import Lengths, Sequence, State

__all__ = ["FORMS", "Choice", "Form", "VendorCall", "choose", "explain", "forms_that_can_run", "recur", "using"]


class Form(NamedTuple):
    """One way to compute the recurrence. A cell is anything with `drive`, `step`, `vendor`, `hidden_size`."""

    run: Callable[[Any, Sequence, State, Lengths | None], tuple[Sequence, State]]
    obstacle: Callable[[Any, Sequence, Lengths | None], str | None]  # why it cannot run
    drawback: Callable[[Any, Sequence, Lengths | None], str | None]  # why another is faster
    title: Callable[[Any, Sequence], str]
    device: str | None = None  # where it is at home; elsewhere it runs only if asked for, and nobody speaks of it


def _never(cell: Any, x: Sequence, lengths: Lengths | None) -> None:
    return None


FORMS = {
    "generated": Form(generated.run, generated.obstacle, generated.drawback, generated.title, "cuda"),
    "vendor": Form(vendor.run, vendor.obstacle, vendor.drawback, vendor.title),
    "reference": Form(reference.run, _never, _never, lambda cell, x: "the plain loop"),
}
_asked = "auto"


def asked() -> str:
    """The form that `using` asks for: "auto" where nobody does."""
    return _asked


class Choice(NamedTuple):
    form: str
    reason: str

    def __str__(self) -> str:
        return f"{self.form}: {self.reason}"


def recur(cell: Any, x: Sequence, state: State, lengths: Lengths | None = None) -> tuple[Sequence, State]:
    """Outputs (batch, time, hidden_size) and the state after each row's last real position."""
    lengths = _unequal(x, lengths)
    return FORMS[choose(cell, x, lengths).form].run(cell, x, state, lengths)


def choose(cell: Any, x: Sequence, lengths: Lengths | None = None) -> Choice:
    """The form that `recur` would take here, with the reason: whose kernel it is, or why no faster one runs."""
    lengths = _unequal(x, lengths)
    if _asked != "auto":
        problem = FORMS[_asked].obstacle(cell, x, lengths)
        if problem:
            raise ConfigError(f"the {_asked} form of the recurrence cannot run: {problem}")
        return Choice(_asked, f"{FORMS[_asked].title(cell, x)}, as asked")
    problems: list[str] = []
    for name, form in FORMS.items():
        if form.device not in (None, x.device.type):
            continue
        problem = form.obstacle(cell, x, lengths) or form.drawback(cell, x, lengths)
        if not problem:
            reasons = [form.title(cell, x)] if name != "reference" else list(dict.fromkeys(problems))
            return Choice(name, "; ".join(reasons) or form.title(cell, x))
        problems.append(problem)
    raise AssertionError("the reference form always runs")


def explain(cell: Any, x: Sequence, lengths: Lengths | None = None) -> str:
    """Which form runs and why: "vendor: oneDNN LSTM", "reference: a recorder is listening"."""
    return str(choose(cell, x, lengths))


def forms_that_can_run(cell: Any, x: Sequence, lengths: Lengths | None = None) -> list[str]:
    """What tests and benchmarks compare."""
    return [name for name, form in FORMS.items() if not form.obstacle(cell, x, lengths)]


def _unequal(x: Sequence, lengths: Lengths | None) -> Lengths | None:
    """Nothing if every row is full; lengths on a GPU are not asked, since the answer would have to be waited for."""
    if lengths is not None and lengths.device.type == "cpu" and bool((lengths == x.shape[1]).all()):
        return None
    return lengths


@contextmanager
def using(form: str) -> Iterator[None]:
    """For tests and benchmarks: this form everywhere in the process, or an error with the reason why it cannot run."""
    global _asked  # noqa: PLW0603
    if form != "auto" and form not in FORMS:
        raise UnknownName("form of the recurrence", form, ["auto", *FORMS])
    before, _asked = _asked, form
    try:
        yield
    finally:
        _asked = before
