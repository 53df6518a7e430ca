"""Labs: a question, an experiment, ranges of its measurements over five seeds, and the answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from elman.errors import UnknownName
from elman.figures.figure import Figure
from elman.figures.render_html import page, section, table

HEADS = ["measurement", "value", "range over seeds", "inside"]
Progress = Callable[[str, int, int, float], None]  # name of the model, step, number of steps, loss


class Expected(NamedTuple):
    """The range of a measurement over seeds 0 to 4, with a margin."""

    low: float
    high: float


class Result(NamedTuple):
    """Figures and measurements of one run."""

    figures: Sequence[Figure]
    measured: Mapping[str, float]


@dataclass(frozen=True)
class Lab:
    name: str
    topic: str
    question: str
    answer: str
    expected: Mapping[str, Expected]
    experiment: Callable[[int, Progress], Result]
    doubt: str = ""
    """Limits of the answer."""

    def run(self, seed: int = 0, progress: Progress = lambda name, step, steps, loss: None) -> "Report":
        found = self.experiment(seed, progress)
        assert found.measured.keys() == self.expected.keys(), f"{self.name} measures {[*found.measured]}"
        return Report(self, seed, found)


@dataclass(frozen=True)
class Report:
    lab: Lab
    seed: int
    found: Result

    def outside(self) -> list[str]:
        """Measurements outside their ranges."""
        ranges, measured = self.lab.expected, self.found.measured
        return [name for name, value in measured.items() if not ranges[name].low <= value <= ranges[name].high]

    def rows(self) -> list[list[Any]]:
        ranges, out = self.lab.expected, self.outside()
        return [
            [name, float(value), f"{ranges[name].low:.3g} to {ranges[name].high:.3g}", "no" if name in out else "yes"]
            for name, value in self.found.measured.items()
        ]

    def plain(self) -> dict[str, Any]:
        expected = {name: list(range_) for name, range_ in self.lab.expected.items()}
        facts = {"lab": self.lab.name, "seed": self.seed, "question": self.lab.question, "answer": self.lab.answer}
        return {**facts, "measured": dict(self.found.measured), "expected": expected, "outside": self.outside()}

    def html(self, command: str = "") -> str:
        """The page: question, figures, measurements, answer."""
        lab = self.lab
        parts: list[Figure | str] = [f"<p><strong>Question.</strong> {escape(lab.question)}</p>", *self.found.figures]
        caption = f"Seed {self.seed}, and the range over five seeds with a margin."
        parts.append(section("Numbers", table(caption, HEADS, self.rows()), "numbers"))
        limits = f"<p><strong>Limits.</strong> {escape(lab.doubt)}</p>" if lab.doubt else ""
        parts.append(section("Answer", f"<p>{escape(lab.answer)}</p>{limits}", "answer"))
        parts += [section("Reproduce", f"<pre>{escape(command)}</pre>", "reproduce")] if command else []
        return page(f"{lab.topic}: {lab.name}", parts)


def find(labs: Mapping[str, Lab], name: str) -> Lab:
    if name not in labs:
        raise UnknownName("lab", name, labs)
    return labs[name]
