"""The best score of each family on each task, compared with published claims."""

from collections.abc import Iterable
from typing import Any

from elman.corpus.synthetic_tasks import TASKS, SyntheticTask
from elman.errors import RunError
from elman.pipeline.families import in_order
from elman.pipeline.synthetic_tasks.records import Record


def summary(records: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """For each task its measure, chance, scores by family, and the published claims with whether they held.

    A family's score is that of its best seed, as Delétang et al. (2023) have it: the question is what it can do.
    """
    by_task: dict[str, list[Record]] = {}
    for record in records:
        by_task.setdefault(record.task, []).append(record)
    return {name: _of_task(name, by_task[name]) for name in sorted(by_task)}


def _of_task(name: str, records: list[Record]) -> dict[str, Any]:
    task = _task(name, records)
    scores: dict[str, float] = {}
    for family in in_order(record.family for record in records):
        found = [record.score for record in records if record.family == family and record.score is not None]
        if found:
            scores[family] = max(found, key=task.progress)
    checks = task.expected(scores)
    best = max(scores.values(), key=task.progress, default=None)
    return {
        "measure": task.measure,
        "chance": task.chance,
        "solved_at": task.solved,
        "scores": scores,
        "shown": {family: task.show(score) for family, score in scores.items()},
        "shown_chance": task.show(task.chance),
        "best": [family for family in scores if best is not None and task.show(scores[family]) == task.show(best)],
        "seeds_solved": {
            family: f"{sum(record.solved for record in own)}/{len(own)}"
            for family in scores
            for own in [[record for record in records if record.family == family]]
        },
        "checks": [check._asdict() for check in checks],
        "reproduced": all(check.held for check in checks) if checks else None,
    }


def _task(name: str, records: list[Record]) -> SyntheticTask:
    """The settings shared by all records; scores of different settings cannot be compared."""
    settings = {part: [record.settings.get(part) for record in records] for part in ("task", "training")}
    for part, given in settings.items():
        if any(one != given[0] for one in given):
            raise RunError(f"results for {name} have different settings of the {part}; show them apart from each other")
    return TASKS[name](TASKS[name].Config.make(settings["task"][0], where=f"task.{name}"))


def verdict(name: str, found: dict[str, Any]) -> str:
    """One line: "parity: lstm 100 % ≥ 99 %, attention 51 % about chance (50 %): reproduced"."""
    if found["reproduced"] is None:
        return f"{name}: nothing was published about these families alone"
    said = ", ".join(check["statement"] if check["held"] else f"NOT {check['statement']}" for check in found["checks"])
    return f"{name}: {said}: {'' if found['reproduced'] else 'not '}reproduced"
