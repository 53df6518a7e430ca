"""The results of a sweep: its trials, the best one as a recipe, and how much each setting matters."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from elman.comparison.plan import alone_in
from elman.comparison.race_figures import Row
from elman.comparison.spaces import Choice, Space
from elman.comparison.sweep_run import SweepRun, Trial
from elman.errors import ElmanError
from elman.jsonable import jsonable
from elman.pipeline.recipe import write_recipe
from elman.pipeline.tasks.race import Measure
from elman.runs import FileManifest, atomic_write

BEST = "best.yaml"
BINS = 5  # classes of an interval at most, for its importance
PER_BIN = 4  # trials in each at least


class SweepResults(NamedTuple):
    """The results of a sweep; rows are in the order of the trials."""

    measure: Measure
    rows: list[Row]
    best: Row
    importance: dict[str, float]

    @property
    def ranked(self) -> list[Row]:
        """The rows from best to worst: complete ones, pruned ones, failed ones."""
        order, sign = ["complete", "pruned", "failed"], 1 if self.measure.lower_is_better else -1
        return sorted(
            self.rows,
            key=lambda row: (
                order.index(row["outcome"]),
                row["score"] is None,
                sign * (row["score"] or 0),
                row["trial"],
            ),
        )


def gather_sweep(running: SweepRun) -> SweepResults:
    """Collects the results of all trials that ended; writes results.jsonl, one trial per line, and the best recipe."""
    if (best := running.best) is None:
        problem = next(iter(running.failures.values()), "no trial has ended").strip().splitlines()[-1]
        raise ElmanError(f"no trial has a score: {problem}")
    ended = [one for one in running.trials if one.number in running.results or one.number in running.failures]
    rows = [_row(running, trial) for trial in ended]
    lines = [json.dumps(jsonable(row), ensure_ascii=False, allow_nan=False) for row in rows]
    with alone_in(running.folder):
        atomic_write(running.folder / "results.jsonl", ("\n".join(lines) + "\n").encode())
        FileManifest(running.folder).write(BEST, write_recipe(running.recipe(best.settings)).encode())
    scored = [(one.settings, running.results[one.number].score) for one in ended if one.number in running.results]
    found = importance(running.spaces, *zip(*scored, strict=True))
    return SweepResults(running.measure, rows, next(row for row in rows if row["trial"] == best.number), found)


def _row(running: SweepRun, trial: Trial) -> Row:
    row: Row = {"trial": trial.number, "settings": trial.settings, "outcome": "failed", "score": None, "figures": {}}
    if (found := running.results.get(trial.number)) is None:
        return {**row, "failure": running.failures[trial.number].strip()}
    results = trial.job.results
    own = results["valid"]
    row |= {"outcome": "pruned" if found.pruned_at else "complete", "score": own.get(running.measure.key)}
    row["figures"] = {key: own[key] for key in running.task.shown_scores if key in own}
    if "test" in results:
        row["test"] = results["test"].get(running.measure.key)
    row |= {"parameters": results["parameters"], "steps": found.curve[-1][0] if found.curve else None}
    return row | {"seconds": trial.job.read("usage.json").get("seconds")}


def importance(
    spaces: Mapping[str, Space], settings: Sequence[Mapping[str, Any]], scores: Sequence[float]
) -> dict[str, float]:
    """The share of the variance of the ranks of scores that each setting explains alone (an adjusted correlation ratio,
    epsilon squared: chance alone gives 0 on average). Values of an interval are put into classes of equal size."""
    ranks = np.argsort(np.argsort(np.asarray(scores), kind="stable"), kind="stable").astype(np.float64)
    found = {}
    for key, space in spaces.items():
        places = np.array([space.place(one[key]) for one in settings])
        if not isinstance(space, Choice):
            count = max(1, min(BINS, len(places) // PER_BIN))
            edges = np.quantile(places, np.arange(1, count) / count)
            places = np.searchsorted(edges, places, side="right")
        found[key] = _explained(places, ranks)
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def _explained(groups: Any, values: Any) -> float:
    """Epsilon squared of values by groups, at least 0."""
    kinds, count = np.unique(groups), len(values)
    total = float(((values - values.mean()) ** 2).sum())
    if len(kinds) < 2 or count <= len(kinds) or not total:
        return 0.0
    within = sum(float(((own - own.mean()) ** 2).sum()) for kind in kinds for own in [values[groups == kind]])
    return max(0.0, 1 - (within / (count - len(kinds))) / (total / (count - 1)))
