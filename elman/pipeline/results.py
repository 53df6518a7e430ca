"""Results of a finished run: scores on held-out splits, samples, learning curves, and goals."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from elman.figures.learning_curves import save_learning_curves
from elman.models.stack import count_parameters
from elman.pipeline.recipe import Goal
from elman.pipeline.samples import Samples
from elman.runs import read_metrics

if TYPE_CHECKING:
    from elman.pipeline.session import Session


def final_results(session: "Session") -> dict[str, Any]:
    recipe, prepared, run = session.recipe, session.prepared, session.run
    task = prepared.task
    results: dict[str, Any] = {"task": recipe.task, "parameters": count_parameters(session.model)}
    results |= task.describe_model(session.model)
    for split in ("valid", "test"):
        if split in prepared.stores:
            found = task.evaluate(session.model, prepared, recipe, split)
            results[split] = found.scores
            results["notes"] = [*results.get("notes", []), *(f"{split}: {note}" for note in found.notes)]
    samples = task.samples(session.model, prepared, recipe)
    if samples:
        results["samples"] = samples
        Samples(run.samples).add(session.trainer.step, samples)
    records = read_metrics(run.metrics)
    best = look_up(results, "valid.language.excess.best")
    save_learning_curves(records, run.plots, bound=best, title=run.folder.name)
    task.plots(session.model, prepared, recipe, run.plots)
    speeds = [record["clock"]["tokens_per_second"] for record in records if record["kind"] == "step"]
    results["tokens_per_second"] = sorted(speeds)[len(speeds) // 2] if speeds else None
    results["speed_unit"] = task.speed_unit(recipe)
    results["goals"] = [check_goal(goal, results) for goal in recipe.goals]
    return results


def check_goal(goal: Goal, results: Mapping[str, Any]) -> dict[str, Any]:
    value = look_up(results, goal.measure)
    met = value is not None
    met = met and (goal.at_most is None or value <= goal.at_most) and (goal.at_least is None or value >= goal.at_least)
    return {**goal.plain(), "value": value, "met": met}


def look_up(results: Any, path: str) -> Any:
    """The value at a dotted path, or None."""
    for part in path.split("."):
        results = results.get(part) if isinstance(results, Mapping) else None
    return results
