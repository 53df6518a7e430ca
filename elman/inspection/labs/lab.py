"""What a lab is: a question, an experiment, ranges that its numbers fell into over five seeds, and the answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from elman.errors import UnknownName
from elman.figures.figure import Figure
from elman.figures.render_html import page, table

Progress = Callable[[str, int, int, float], None]  # who trains, its step, how many there will be, the loss


class Expected(NamedTuple):
    """A number of the experiment, and where it fell for the seeds 0 to 4, with some room."""

    low: float
    high: float


class Result(NamedTuple):
    """What one run of a lab gave."""

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
    """What would change one's mind, or what the usual story leaves out."""

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
        """The numbers that fell outside their ranges."""
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
        """The page: question, pictures, numbers, answer."""
        lab = self.lab
        before = f"<p><strong>Question.</strong> {escape(lab.question)}</p>\n"
        parts: list[Figure | str] = []
        for figure in self.found.figures:
            parts += [f"<h2>{escape(figure.title)}</h2>", figure]
        parts.append("<h2>Numbers</h2>" + table(["what", "measured", "five seeds gave", "inside"], self.rows()))
        parts.append(f"<h2>Answer</h2><p>{escape(lab.answer)}</p>")
        parts += [f"<p><strong>But.</strong> {escape(lab.doubt)}</p>"] if lab.doubt else []
        parts += [f"<pre>{escape(command)}</pre>"] if command else []
        return page(f"{lab.topic}: {lab.name}", parts, before)


def find(labs: Mapping[str, Lab], name: str) -> Lab:
    if name not in labs:
        raise UnknownName("lab", name, labs)
    return labs[name]
