"""What a finished run has to show: scores on every held-out split, samples, curves, and whether its goals were met."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from elman.evaluation import Likelihood, compare, evaluate, excess
from elman.evaluation.likelihood import plain
from elman.generation import generate
from elman.inspection.curves import draw_curves
from elman.models import prediction_of
from elman.models.stack import count_parameters
from elman.pipeline.prepare import Prepared
from elman.pipeline.recipe import Goal, Recipe
from elman.runs import atomic_write, read_metrics

if TYPE_CHECKING:
    from elman.pipeline.session import Session

SAMPLES = 5
FEW = 20  # cases under which a share says little


def final_results(session: "Session") -> dict[str, Any]:
    recipe, prepared, run = session.recipe, session.prepared, session.run
    results: dict[str, Any] = {"prediction": prediction_of(session.model), "parameters": count_parameters(session.model)}
    for split in ("valid", "test"):
        if split in prepared.stores:
            results[split] = score_split(session.model, prepared, recipe, split)
    if results["prediction"] == "left-to-right":
        settings = recipe.generation.model_copy(update={"seed": recipe.seed})
        samples = generate(session.model, prepared.tokenizer, [""] * SAMPLES, settings)
        results["samples"] = [sample.text for sample in samples]
        atomic_write(run.samples / f"step-{session.trainer.step:08d}.txt", "\n---\n".join(results["samples"]).encode())
    records = read_metrics(run.metrics)
    best = look_up(results, "valid.language.excess.best")
    draw_curves(records, run.plots, bound=best, title=run.folder.name)
    speeds = [record["clock"]["tokens_per_second"] for record in records if record["kind"] == "step"]
    results["tokens_per_second"] = sorted(speeds)[len(speeds) // 2] if speeds else None
    results["goals"] = [judge(goal, results) for goal in recipe.goals]
    return results


def score_split(model: Any, prepared: Prepared, recipe: Recipe, split: str) -> dict[str, Any]:
    """Likelihood of a split; for a synthetic language also the distance to the best possible and the grammar."""
    batches, context = prepared.evaluation_batches(split, recipe)
    likelihood = evaluate(model, batches, prepared.stores[split].facts, context)
    scores = likelihood.plain()
    if prepared.corpus.language is not None:
        scores["language"] = beside_the_truth(model, prepared, split, likelihood)
    return scores


def beside_the_truth(model: Any, prepared: Prepared, split: Any, likelihood: Likelihood) -> dict[str, Any]:
    """Distance to the best possible loss of reading from left to right; with a token for each word also the grammar."""
    language: Any = prepared.corpus.language
    documents = prepared.corpus.documents(split)
    if prepared.tokenizer.name != "word":
        return {"excess": plain(excess(likelihood, language, documents)) if likelihood.kind == "likelihood" else None}
    found = compare(model, prepared.tokenizer, language, documents).plain()
    cases = [entry for entry in (found["agreement"] or {}).get("by_distance", []) if entry["words"] >= FEW]
    return {**found, "worst_agreement": min((entry["accuracy"] for entry in cases), default=None)}


def judge(goal: Goal, results: Mapping[str, Any]) -> dict[str, Any]:
    value = look_up(results, goal.measure)
    met = value is not None
    met = met and (goal.at_most is None or value <= goal.at_most) and (goal.at_least is None or value >= goal.at_least)
    return {**goal.plain(), "value": value, "met": met}


def look_up(results: Any, place: str) -> Any:
    """The figure at a dotted place, or None."""
    for part in place.split("."):
        results = results.get(part) if isinstance(results, Mapping) else None
    return results
