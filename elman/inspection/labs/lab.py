"""Labs: a question, an experiment, ranges of its measurements over five seeds, and the answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from elman.errors import UnknownName
from elman.figures.figure import Figure
from elman.figures.render_html import page, section, table
from elman.inspection.small_models import Progress, silent

HEADS = ["measurement", "value", "range over seeds", "inside"]


class Result(NamedTuple):
    figures: Sequence[Figure]
    measured: Mapping[str, float]


@dataclass(frozen=True)
class Lab:
    name: str
    topic: str
    question: str
    answer: str
    expected: Mapping[str, tuple[float, float]]  # measurements to report, and their ranges over seeds 0 to 4
    experiment: Callable[[int, Progress], Result]
    doubt: str = ""  # limits of the answer

    def run(self, seed: int = 0, progress: Progress = silent) -> "Report":
        figures, measured = self.experiment(seed, progress)
        return Report(self, seed, Result(figures, {name: float(measured[name]) for name in self.expected}))


@dataclass(frozen=True)
class Report:
    lab: Lab
    seed: int
    found: Result

    def rows(self) -> list[list[Any]]:
        """Name, value and range of each measurement, and whether the value is inside."""
        values = [(name, self.found.measured[name], *range_) for name, range_ in self.lab.expected.items()]
        return [
            [name, value, f"{low:.3g} to {high:.3g}", "yes" if low <= value <= high else "no"]
            for name, value, low, high in values
        ]

    def outside(self) -> list[str]:
        return [name for name, *_, inside in self.rows() if inside == "no"]

    def plain(self) -> dict[str, Any]:
        facts = {"lab": self.lab.name, "seed": self.seed, "question": self.lab.question, "answer": self.lab.answer}
        expected = {name: list(range_) for name, range_ in self.lab.expected.items()}
        return {**facts, "measured": self.found.measured, "expected": expected, "outside": self.outside()}

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
