"""The results of a race: for every entrant its scores with intervals, its costs and its rank."""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elman.comparison.inference_cost import inference_cost
from elman.comparison.parquet import write_parquet
from elman.comparison.plan import Entrant, Job, alone_in
from elman.comparison.race import RaceRun
from elman.comparison.ranking import Scores, Verdict, rank
from elman.errors import ElmanError, MissingExtra, RunError, first_line
from elman.files import npy_bytes
from elman.jsonable import jsonable
from elman.limits import limits
from elman.pipeline.results import look_up
from elman.pipeline.tasks import PreparedData
from elman.pipeline.tasks.race import ExampleValues, Measure
from elman.pipeline.trained_model import load
from elman.runs import FileManifest, atomic_write, read_metrics
from elman.untrusted import parse_json, read_array, read_bytes

PARQUET = "results.parquet"
CLASS_KEYS = ("from", "to", "tokens")  # of a table by length or frequency, beside its mean value
NEAR = 0.05  # relative excess over the best validation loss at which it counts as reached


class RaceResults(NamedTuple):
    """The results of a race: scores and costs of each entrant, and who wins."""

    measure: Measure
    split: str
    rows: list[dict[str, Any]]  # from best to worst, failed ones last
    verdict: Verdict

    @property
    def ranked(self) -> list[dict[str, Any]]:
        """The rows without those that failed."""
        return [row for row in self.rows if row["place"] is not None]


@contextmanager
def files_of_race(folder: Path) -> Iterator[None]:
    """RunError where files of a race do not hold what a race writes."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise RunError(f"{folder}: a file of the race does not hold what a race writes: {reason}") from error


def gather(running: RaceRun) -> RaceResults:
    """The results of all finished runs, ranked."""
    with files_of_race(running.folder), alone_in(running.folder):
        return _gather(running)


def _gather(running: RaceRun) -> RaceResults:
    """Collects and ranks the results of all finished runs; writes results.jsonl, one entrant per line, and with pyarrow
    installed results.parquet."""
    plan = running.plan
    split, task = plan.split, plan.prepared.task
    rows, scores = {}, {}
    measure: Measure | None = None
    for entrant in plan.entrants:
        jobs = [job for job in running.jobs.get(entrant.name, []) if job.done]
        row = _description(running, entrant, jobs)
        rows[entrant.name] = row
        if not jobs:
            continue
        seeds = [job.results[split] for job in jobs]
        measure = measure or next(one for one in task.measures if one.key in seeds[0])
        values = [_value(one.get(measure.key)) for one in seeds]
        values_by_seed = _example_values(running, jobs, row)
        documents = _mean_values(values_by_seed) if measure.key == task.paired_measure else (None, None)
        scores[entrant.name] = Scores(values, entrant.counted, *documents)
        row |= _scores(seeds, scores[entrant.name], task.shown_scores) | _grammar(seeds)
        row |= _costs(running, entrant, jobs, row)
        row["samples"] = jobs[0].results.get("samples", [])[:3]
    if measure is None:
        problems = [f"{name} {label}: {text}" for name, own in running.failures.items() for label, text in own.items()]
        raise ElmanError(f"all runs failed: {problems[0] if problems else 'there were no entrants'}")
    verdict = rank(scores, measure.lower_is_better)
    _seconds_to_near(running, rows, verdict, measure)
    ordered = [rows[name] for name in [*verdict.order, *(name for name in rows if name not in scores)]]
    for place, row in enumerate(ordered, start=1):
        comparison = verdict.comparisons.get(row["entrant"])
        row["place"] = place if row["entrant"] in scores else None
        row["against_best"] = vars(comparison) if comparison else None
    rows_kept = jsonable(ordered)
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows_kept]
    atomic_write(running.folder / "results.jsonl", ("\n".join(lines) + "\n").encode())
    with suppress(MissingExtra):  # reported on the command line
        write_parquet(rows_kept, running.folder / PARQUET)
    return RaceResults(measure, split, ordered, verdict)


def _description(running: RaceRun, entrant: Entrant, jobs: Sequence[Job]) -> dict[str, Any]:
    """What an entrant is, and how it was trained."""
    rate = None if entrant.counted or not jobs else jobs[0].recipe.training.learning_rate
    return {
        "entrant": entrant.name,
        "seeds": len(jobs),
        "exact": entrant.counted,
        "failures": running.failures.get(entrant.name, {}),
        "parameters": entrant.parameters,
        "model": entrant.recipe.model.plain(),
        "learning_rate": running.rates.get(entrant.name, rate),
        "rates_tried": sorted(running.tried.get(entrant.name, [])),
        "training_flops_per_token": entrant.flops or None,
    }


def _scores(seeds: list[dict[str, Any]], main: Scores, shown: Sequence[str]) -> dict[str, Any]:
    figures = {key: [_value(one.get(key)) for one in seeds] for key in shown if key in seeds[0]}
    return {
        "score": main.mean,
        "spread": main.spread,
        "interval": main.interval,
        "by_seed": list(main.values),
        "figures": {key: float(np.mean(values)) for key, values in figures.items()},
        "by_position": _mean_over(seeds, "by_position", "loss"),
    }


def _grammar(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """For a synthetic language: excess over its entropy, and agreement accuracy by distance."""
    if not look_up(seeds[0], "language.excess"):
        return {}
    inner = [one["language"] for one in seeds]
    found: dict[str, Any] = {
        "best_possible": inner[0]["excess"]["best"],
        "excess": float(np.mean([one["excess"]["excess"] for one in inner])),
        "relative_excess": float(np.mean([one["excess"]["relative"] for one in inner])),
    }
    if look_up(inner[0], "agreement.by_distance"):
        agreements = [one["agreement"] for one in inner]
        found["agreement"] = float(np.mean([one["accuracy"] for one in agreements]))
        found["staircase"] = _mean_over(agreements, "by_distance", "accuracy", spread=True)
        found["by_attractors"] = _mean_over(agreements, "by_attractors", "accuracy")
    return found


def _mean_over(seeds: list[dict[str, Any]], part: str, value: str, spread: bool = False) -> list[dict[str, Any]]:
    """A table averaged over seeds."""
    tables = [one[part] for one in seeds if one.get(part)]
    if not tables:
        return []
    result = []
    for place, entry in enumerate(tables[0]):
        values = [table[place][value] for table in tables if len(table) > place]
        between = {"least": min(values), "most": max(values)} if spread else {}
        result.append({**entry, value: float(np.mean(values)), **between})
    return result


def _example_values(running: RaceRun, jobs: Sequence[Job], row: dict[str, Any]) -> list[ExampleValues]:
    """Of all seeds; their tables go into the row. A failure is recorded there, and the scores stay."""
    found = []
    for job in jobs:
        try:
            found.append(example_values(job, running.plan.prepared, running.plan.split))
        except (ElmanError, RuntimeError, OSError) as error:
            row["failures"] = {**row["failures"], f"{job.label} (documents)": str(error)[-300:]}
            return []
    tables = [one.tables for one in found]
    for key, first in tables[0].items() if tables else ():
        row[key] = _mean_over(tables, key, next(name for name in first[0] if name not in CLASS_KEYS))
    return found


def example_values(job: Job, prepared: PreparedData, split: str) -> ExampleValues:
    """The score of a trained model on each example, computed once and kept beside the run."""
    values, tables = job.folder / "units.npy", job.folder / "classes.json"
    if values.exists() and tables.exists():
        kept = job.read(tables.name)
        numbers = read_array(values)
        if numbers.shape[:1] != (2,) or numbers.ndim != 2 or numbers.dtype != np.float64:
            raise RunError(f"{values}: not the values and weights of examples; delete it to have them computed again")
        return ExampleValues(numbers[0], numbers[1], kept)
    trained = load(job.folder)
    found = trained.task.example_values(trained, prepared, split)
    manifest = FileManifest(job.folder)
    manifest.write(values.name, npy_bytes(np.stack([found.values, found.weights])))
    manifest.write(tables.name, json.dumps(found.tables).encode())
    return found


def _mean_values(seeds: list[ExampleValues]) -> tuple[Any, Any]:
    if not seeds or any(len(one.values) != len(seeds[0].values) for one in seeds):
        return None, None
    return np.mean([one.values for one in seeds], axis=0), seeds[0].weights


def _costs(running: RaceRun, entrant: Entrant, jobs: Sequence[Job], row: dict[str, Any]) -> dict[str, Any]:
    results, usages = [job.results for job in jobs], [job.read("usage.json") for job in jobs]
    ends = [points[-1] if (points := curve(job)) else (None, None, None) for job in jobs]
    costs: dict[str, Any] = {
        "training_tokens_per_second": _mean([one.get("tokens_per_second") for one in results]),
        "training_seconds": _mean([seconds for *_, seconds in ends]),
        "process_seconds": _mean([one.get("seconds") for one in usages]),
        "peak_bytes": max((one["peak_bytes"] for one in usages if one.get("peak_bytes")), default=None),
        "training_tokens": ends[0][0],
    }
    costs["training_flops"] = (entrant.flops or 0) * (costs["training_tokens"] or 0) or None
    try:
        return costs | inference_cost(jobs[0], running.plan.prepared, running.plan.split)
    except (ElmanError, RuntimeError, OSError) as error:
        row["failures"] = {**row["failures"], "speed": str(error)[-300:]}
        return costs


def curve(job: Job) -> list[tuple[int, float, float]]:
    """(tokens, validation loss, seconds) of every validation."""
    path = job.folder / "metrics.jsonl"
    records = read_metrics(path) if job.done or path.exists() else []
    return [
        (record["tokens"], record["valid_loss"], record["clock"]["seconds"])
        for record in records
        if record["kind"] == "validation" and record["valid_loss"] is not None
    ]


def _seconds_to_near(running: RaceRun, rows: dict[str, Any], verdict: Verdict, measure: Measure) -> None:
    """Seconds of training until the validation loss was within `NEAR` of the best of all entrants."""
    curves = {name: [curve(job) for job in jobs if job.done] for name, jobs in running.jobs.items()}
    losses = [loss for own in curves.values() for points in own for _, loss, _ in points]
    goal = (1 + NEAR) * min(losses) if losses else math.nan
    for name, own in curves.items():
        reached = [next((s for _, loss, s in points if loss <= goal), None) for points in own]
        known = [one for one in reached if one is not None]
        rows[name]["near_loss"] = goal
        rows[name]["seconds_to_near_loss"] = float(np.mean(known)) if known and len(known) == len(own) else None
        rows[name]["seeds_near_loss"] = len(known)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _value(value: Any) -> float:
    return math.inf if value is None else float(value)


def read_results(folder: Path) -> list[dict[str, Any]]:
    """The rows of results.jsonl."""
    path = folder / "results.jsonl"
    return [parse_json(line, path) for line in read_bytes(path, limits().json_bytes).splitlines()]
