"""Labs: a question, an experiment with settings to play with, ranges of measurements over five seeds, the answer."""

import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

from elman.errors import ConfigError, UnknownName
from elman.figures.figure import Figure
from elman.figures.render_html import page, section, table
from elman.inspection.small_models import Progress, silent

HEADS = ["measurement", "value", "range over seeds", "inside"]
Settings = Mapping[str, Any]


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
    experiment: Callable[..., Result]  # (seed, progress), and by keyword its settings
    doubt: str = ""  # limits of the answer
    try_next: Mapping[str, str] = field(default_factory=dict)  # "size=128": what to look for

    @property
    def settings(self) -> dict[str, Any]:
        """What can be changed, with the values of the question: the keywords of the experiment."""
        parameters = inspect.signature(self.experiment).parameters.values()
        return {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}

    def run(self, seed: int = 0, progress: Progress = silent, **changes: Any) -> "Report":
        changes = {name: self._checked(name, value) for name, value in changes.items()}
        changes = {name: value for name, value in changes.items() if value != self.settings[name]}
        figures, measured = self.experiment(seed, progress, **changes)
        shown = measured if changes else self.expected  # other settings may measure other things
        return Report(self, seed, Result(figures, {name: float(measured[name]) for name in shown}), changes)

    def _checked(self, name: str, value: Any) -> Any:
        if name not in self.settings:
            raise UnknownName(f"setting of lab {self.name}", name, self.settings)
        default = self.settings[name]
        kind = type(default)
        if isinstance(value, bool) or not isinstance(value, int | float if kind is float else kind):
            raise ConfigError(f"{name}={value!r}: this setting of lab {self.name} is like {default!r}")
        if kind is not str and not value > 0:
            raise ConfigError(f"{name}={value!r}: must be above 0")
        return kind(value)


@dataclass(frozen=True)
class Report:
    lab: Lab
    seed: int
    found: Result
    changes: Settings = field(default_factory=dict)

    def rows(self) -> list[list[Any]]:
        """Name, value and range of each measurement, and whether it is inside; with other settings nobody knows."""
        rows: list[list[Any]] = []
        for name, value in self.found.measured.items():
            low, high = self.lab.expected.get(name, (value, value))
            known = f"{low:.3g} to {high:.3g}" if name in self.lab.expected else ""
            rows.append([name, value, known, "" if self.changes else "yes" if low <= value <= high else "no"])
        return rows

    def outside(self) -> list[str]:
        return [name for name, *_, inside in self.rows() if inside == "no"]

    def plain(self) -> dict[str, Any]:
        facts = {"lab": self.lab.name, "seed": self.seed, "question": self.lab.question, "answer": self.lab.answer}
        expected = {name: list(range_) for name, range_ in self.lab.expected.items()}
        settings = {**self.lab.settings, **self.changes}
        return {
            **facts,
            "settings": settings,
            "measured": self.found.measured,
            "expected": expected,
            "outside": self.outside(),
        }

    def python(self) -> str:
        """The Python that makes this report."""
        own = "".join(f", {name}={value!r}" for name, value in self.changes.items())
        call = f'report = LABS["{self.lab.name}"].run(seed={self.seed}{own})'
        return (
            f'from elman.inspection.labs import LABS\n\n{call}\nopen("{self.lab.name}.html", "w").write(report.html())'
        )

    def html(self, command: str = "") -> str:
        """The page: question, figures, measurements, answer, and how to go on."""
        lab = self.lab
        parts: list[Figure | str] = [f"<p><strong>Question.</strong> {escape(lab.question)}</p>", *self.found.figures]
        caption = f"Seed {self.seed}, and the range over five seeds with a margin."
        if self.changes:
            caption = f"Seed {self.seed}, with other settings; the ranges are those of the question's settings."
        parts.append(section("Numbers", table(caption, HEADS, self.rows()), "numbers"))
        limits = f"<p><strong>Limits.</strong> {escape(lab.doubt)}</p>" if lab.doubt else ""
        parts.append(section("Answer", f"<p>{escape(lab.answer)}</p>{limits}", "answer"))
        parts.append(section("What to try next", self._ideas(), "next"))
        reproduce = f"<pre>{escape(command)}</pre>" if command else ""
        reproduce += f"<pre>{escape(self.python())}</pre>"
        source = escape(inspect.getsource(lab.experiment).strip())
        reproduce += f"<details><summary>The experiment</summary><pre>{source}</pre></details>"
        parts.append(section("Reproduce", reproduce, "reproduce"))
        return page(f"{lab.topic}: {lab.name}", parts)

    def _ideas(self) -> str:
        run = ["elman", "lab", "run", self.lab.name, "--set"]
        words = [(shlex.join([*run, one]), why) for one, why in self.lab.try_next.items()]
        ideas = "".join(f"<li>{escape(why)}<pre>{escape(command)}</pre></li>" for command, why in words)
        rows = [[name, str(self.changes.get(name, value)), str(value)] for name, value in self.lab.settings.items()]
        return (f"<ul>{ideas}</ul>" if ideas else "") + table("Settings", ["setting", "here", "in the question"], rows)


def find(labs: Mapping[str, Lab], name: str) -> Lab:
    if name not in labs:
        raise UnknownName("lab", name, labs)
    return labs[name]
