"""Where models disagree: the examples that one gets right and another does not, all of them in examples.jsonl."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from elman.comparison.race import RaceRun
from elman.comparison.results import RaceResults
from elman.pipeline.tasks.examples import RIGHT
from elman.pipeline.tasks.race import ExampleOutput
from elman.pipeline.trained_model import load
from elman.runs import atomic_write

COMPARED = 300  # examples, from the first on
LONGEST = 300  # characters of a text that is shown
SHOWN = 4  # where the best gains most over the next, and as many where it loses


class ExampleTable(NamedTuple):
    """A table for the report."""

    caption: str
    heads: list[str]
    rows: list[list[str]]
    kind: str


def disagreements(found: RaceResults, running: RaceRun) -> ExampleTable | None:
    """By the first seeds of all: examples from the largest gain of the best over the next to its largest loss."""
    names = [row["entrant"] for row in found.ranked]
    task = running.plan.prepared.task
    if len(names) < 2:
        return None
    models = [load(next(job for job in running.jobs[name] if job.done).folder) for name in names]
    examples = list(task.race_outputs(models, running.plan.prepared, found.split, COMPARED, LONGEST))
    lines = [
        {"text": one.text, "right": one.expected, "said": dict(zip(names, one.outputs, strict=True)),
         "scores": dict(zip(names, one.scores, strict=True))}
        for one in examples
    ]  # fmt: skip
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    atomic_write(running.folder / "examples.jsonl", text.encode())
    return _graded_table(names, examples, task.graded) if task.graded else _right_or_wrong_table(names, examples)


def _most_different(examples: Sequence[ExampleOutput]) -> list[ExampleOutput]:
    """The largest gains of the first model over the second, then its largest losses; over the last if these agree."""
    differing = sorted((one for one in examples if _gain(one)), key=_gain, reverse=True)
    gains = [one for one in differing if _gain(one) > 0][:SHOWN]
    found = gains + [one for one in differing if _gain(one) < 0][-SHOWN:]
    others = sorted((one for one in examples if len(set(one.scores)) > 1), key=lambda one: min(one.scores))
    return found or others[: 2 * SHOWN]


def _gain(one: ExampleOutput) -> float:
    return one.scores[0] - one.scores[1]


def _graded_table(names: Sequence[str], examples: Sequence[ExampleOutput], unit: str) -> ExampleTable | None:
    """A table of graded scores, for outputs that are not right or wrong."""
    first, second = names[:2]
    known = any(one.expected for one in examples)
    heads = ["text", *(["right answer"] if known else []), first, second, "difference"]
    digits = "4g" if known else "1f"
    rows = [
        [_cut(one.text), *([one.expected] if known else []), *one.outputs[:2], f"{-_gain(one):+.{digits}}"]
        for one in _most_different(examples)
    ]
    caption = f"{unit} by the first seeds: where {first} gains most over {second}, and where it loses most."
    return ExampleTable(caption, heads, rows, "texts") if rows else None


def _right_or_wrong_table(names: Sequence[str], examples: Sequence[ExampleOutput]) -> ExampleTable | None:
    first, second = names[:2]
    right = [[score == 1 for score in one.scores] for one in examples]
    alone = [sum(row[:2] == pair for row in right) for pair in ([True, False], [False, True])]
    by_all, by_none = sum(map(all, right)), sum(not any(row) for row in right)
    caption = (
        f"Of the first {len(examples):,} examples, by the first seeds: all are right on {by_all:,}, none on "
        f"{by_none:,}; {first} is right where {second} is wrong on {alone[0]:,}, the reverse holds for {alone[1]:,}. "
        f"The table shows the largest differences; {RIGHT} is right."
    )
    rows = [[_cut(one.text), _cut(one.expected), *map(_cut, one.outputs)] for one in _most_different(examples)]
    return ExampleTable(caption, ["example", "right answer", *names], rows, "texts words") if rows else None


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
