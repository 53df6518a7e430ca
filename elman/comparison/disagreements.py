"""Where models part: the examples that one gets right and another does not, all of them in examples.jsonl."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from elman.comparison.race import Running
from elman.comparison.results import Found
from elman.pipeline.tasks.examples import ExampleTask
from elman.pipeline.tasks.language import LanguageModelling
from elman.pipeline.trained_model import load
from elman.runs import atomic_write

LOOKED_AT = 300  # examples, from the first on
LONGEST = 300  # characters of a text that is shown
SHOWN = 4  # where the best gains most over the next, and as many where it loses
RIGHT, NOTHING = "✓", "–"  # instead of a right answer, and of an empty one


class Example(NamedTuple):
    """A text, its right answer where there is one, and of each entrant what it said of it and how good that is."""

    text: str
    right: str
    said: list[str]
    scores: list[float]


class Parting(NamedTuple):
    """A table for the report."""

    caption: str
    heads: list[str]
    rows: list[list[str]]
    kind: str


def parting(found: Found, running: Running) -> Parting | None:
    """By the first seeds of all: examples from the largest gain of the best over the next to its largest loss."""
    names = [row["entrant"] for row in found.rows if row["place"] is not None]
    task = running.plan.prepared.task
    if len(names) < 2:
        return None
    if isinstance(task, LanguageModelling):
        every = list(_likelihoods(found, running, names))
    else:
        assert isinstance(task, ExampleTask)
        every = list(_answers(found, running, names, task))
    lines = [
        {"text": one.text, "right": one.right, "said": dict(zip(names, one.said, strict=True)),
         "scores": dict(zip(names, one.scores, strict=True))}
        for one in every
    ]  # fmt: skip
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    atomic_write(running.folder / "examples.jsonl", text.encode())
    return _in_nats(names, every) if isinstance(task, LanguageModelling) else _right_and_wrong(names, every)


def _likelihoods(found: Found, running: Running, names: Sequence[str]) -> Iterator[Example]:
    """Scores are log-probabilities in nats."""
    split: Any = found.split
    documents = islice(running.plan.prepared.corpus.documents(split), LOOKED_AT)
    texts = [document.text for document in documents if 0 < len(document.text) <= LONGEST]
    columns = [[score.log_prob for score in _first(running, name).score(texts)] for name in names]
    for text, scores in zip(texts, zip(*columns, strict=True), strict=True):
        yield Example(text, "", [f"{-score:.1f}" for score in scores], list(scores))


def _answers(found: Found, running: Running, names: Sequence[str], task: ExampleTask) -> Iterator[Example]:
    """Scores are shares of an answer's parts that are right."""
    asked = list(islice(task.questions(running.plan.prepared.corpus, found.split), LOOKED_AT))
    columns: list[list[list[str]]] = []
    for name in names:
        trained = _first(running, name)
        answers = task.predict(trained.model, (line for line, _ in asked), trained.recipe, False)
        columns.append([task.parts(answer) for answer in answers])
    for (line, right), given in zip(asked, zip(*columns, strict=True), strict=True):
        wrong = [[place for place, part in enumerate(right) if parts[place] != part] for parts in given]
        disputed = sorted({place for places in wrong for place in places}) or range(len(right))
        said = [_at(parts, places) or RIGHT for parts, places in zip(given, wrong, strict=True)]
        scores = [1 - len(places) / max(1, len(right)) for places in wrong]
        yield Example(task.question(line), _at(right, disputed), said, scores)


def _at(parts: Sequence[str], places: Iterable[int]) -> str:
    return " ".join(parts[place] or NOTHING for place in places)


def _first(running: Running, name: str) -> Any:
    return load(next(job for job in running.jobs[name] if job.done).folder)


def _apart(every: Sequence[Example]) -> list[Example]:
    """The largest gains of the first over the second, then its largest losses; if these agree, over whoever is last."""
    differing = sorted((one for one in every if _gain(one)), key=_gain, reverse=True)
    gains = [one for one in differing if _gain(one) > 0][:SHOWN]
    found = gains + [one for one in differing if _gain(one) < 0][-SHOWN:]
    others = sorted((one for one in every if len(set(one.scores)) > 1), key=lambda one: min(one.scores))
    return found or others[: 2 * SHOWN]


def _gain(one: Example) -> float:
    return one.scores[0] - one.scores[1]


def _in_nats(names: Sequence[str], every: Sequence[Example]) -> Parting | None:
    first, second = names[:2]
    rows = [[one.text, *one.said[:2], f"{-_gain(one):+.1f}"] for one in _apart(every)]
    caption = (
        f"Nats for a whole text by the first seeds: where {first} gains most over {second}, and where it loses most."
    )
    return Parting(caption, ["text", first, second, "difference"], rows, "texts") if rows else None


def _right_and_wrong(names: Sequence[str], every: Sequence[Example]) -> Parting | None:
    first, second = names[:2]
    right = [[score == 1 for score in one.scores] for one in every]
    alone = [sum(row[:2] == pair for row in right) for pair in ([True, False], [False, True])]
    by_all, by_nobody = sum(map(all, right)), sum(not any(row) for row in right)
    caption = (
        f"Of the first {len(every):,} examples, by the first seeds: all are right on {by_all:,}, nobody on "
        f"{by_nobody:,}; {first} is right where {second} is wrong on {alone[0]:,}, the reverse holds for {alone[1]:,}. "
        f"Shown is where they part most; {RIGHT} is right."
    )
    rows = [[_cut(one.text), _cut(one.right), *map(_cut, one.said)] for one in _apart(every)]
    return Parting(caption, ["example", "right answer", *names], rows, "texts words") if rows else None


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
