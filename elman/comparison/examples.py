"""Where two models part: the texts on which the best gains most over the next, and those on which it loses most."""

from itertools import islice
from typing import Any, NamedTuple

from elman.comparison.race import Running
from elman.comparison.results import Found
from elman.pipeline.tasks.language import LanguageModelling
from elman.pipeline.trained import load

LOOKED_AT = 300  # texts, from the first on
LONGEST = 300  # characters of a text that is shown
SHOWN = 4


class Example(NamedTuple):
    """A text, and the nats that each of two models needs for it."""

    text: str
    first: float
    second: float


def parting(found: Found, running: Running) -> tuple[str, str, list[Example]] | None:
    """The best two, by their first seeds, and texts from the largest gain to the largest loss; of language models."""
    plan, ranked = running.plan, [row["entrant"] for row in found.rows if row["place"] is not None]
    if len(ranked) < 2 or not isinstance(plan.prepared.task, LanguageModelling):
        return None
    split: Any = found.split
    documents = islice(plan.prepared.corpus.documents(split), LOOKED_AT)
    texts = [document.text for document in documents if 0 < len(document.text) <= LONGEST]
    if len(texts) < 2 * SHOWN:
        return None
    scores = []
    for name in ranked[:2]:
        job = next(job for job in running.jobs[name] if job.done)
        scores.append([-score.log_prob for score in load(job.folder).score(texts)])
    every = [Example(*three) for three in zip(texts, *scores, strict=True)]
    every.sort(key=lambda one: one.first - one.second)
    return ranked[0], ranked[1], [*every[:SHOWN], *every[-SHOWN:]]
