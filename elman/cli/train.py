"""elman train: from text to a trained, evaluated model in a run folder."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from elman.cli import options
from elman.cli.evaluate import figures


def train(
    context: typer.Context,
    recipe: options.Recipe = None,
    task: options.Task = None,
    data: options.Data = None,
    valid: options.Valid = None,
    test: options.Test = None,
    target: options.Target = None,
    valid_target: options.ValidTarget = None,
    test_target: options.TestTarget = None,
    columns: options.Columns = None,
    model: options.Model = None,
    tokenizer: options.Tokenizer = None,
    start_from: options.Start = None,
    size: options.Size = None,
    params: options.Params = None,
    seed: options.Seed = None,
    module: options.Module = None,
    device: options.Device = None,
    run: Annotated[Path | None, options.option(help="Run folder.", default="runs/<data>-<model>")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run exactly where it was, or begin it.")
    ] = False,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the whole recipe and stop.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard events.")] = False,
    wandb: Annotated[bool, typer.Option("--wandb", help="Also log to Weights & Biases.")] = False,
    json: options.Json = False,
) -> None:
    """Train a model. Any setting of the recipe is an option: --training.learning_rate 3e-4 --model.dropout 0.2."""
    from elman.pipeline import tracking
    from elman.pipeline.recipe import write_recipe
    from elman.pipeline.resume import source_of
    from elman.pipeline.session import default_run

    built = options.build_recipe(
        context.obj, source_of(recipe, run, resume),
        task=task, data=data, valid=valid, test=test, target=target, valid_target=valid_target,
        test_target=test_target, columns=columns, model=model, tokenizer=tokenizer, start_from=start_from,
        size=size, params=params, seed=seed, device=device,
    )  # fmt: skip
    if print_config:
        print(write_recipe(built), end="")
        return
    folder = run or default_run(built)
    listeners: list[Any] = [tracking.TensorBoard(folder)] if tensorboard else []
    listeners += [tracking.Wandb(folder, built)] if wandb else []
    run_training(built, folder, resume=resume, listeners=listeners, modules=module, json=json)


def run_training(
    recipe: Any,
    folder: Path,
    *,
    resume: bool = False,
    listeners: Iterable[Any] = (),
    modules: Iterable[Path] | None = (),
    json: bool = False,
) -> None:
    """Train with a live picture on stderr; the results, for people or as JSON, on stdout."""
    from elman.cli.progress import Progress
    from elman.pipeline.session import train
    from elman.training.loop import INTERRUPTED

    results: dict[str, Any] = {}
    reason = ""
    try:
        with Progress() as progress:
            for report in train(recipe, run=folder, resume=resume, listeners=[*listeners, progress]):
                reason = report.values["reason"] if report.kind == "end" else reason
                results = report.values if report.kind == "result" else results
    except KeyboardInterrupt:
        reason = INTERRUPTED
    if reason == INTERRUPTED:
        if (folder / "config.yaml").exists():
            again = options.hint("train", "--run", folder, "--resume", modules=modules)
            print(f"interrupted; go on with: {again}", file=sys.stderr)
        raise typer.Exit(130)
    if json and results:
        options.show_json({"run": str(folder), **results})
    elif results:
        show_results(folder, results, modules)


def show_results(folder: Path, results: dict[str, Any], modules: Iterable[Path] | None = ()) -> None:
    if "prediction" in results:
        _show_likelihoods(results)
    else:
        _show_measures(results)
    if results.get("samples"):
        options.table("Samples", ["text"], [[" ".join(text.split())] for text in results["samples"]], wrap=False)
    if results.get("tokens_per_second"):
        print(f"Speed: {results['tokens_per_second']:,.0f} training {results.get('unit', 'tokens')} per second.")
    for goal in results.get("goals", []):
        limit = f"at most {goal['at_most']}" if goal["at_most"] is not None else f"at least {goal['at_least']}"
        print(
            f"Goal {goal['measure']} {limit}: {'met' if goal['met'] else 'NOT met'} ({options.number(goal['value'])})."
        )
    print(f"Plots, samples and metrics are in {folder}")
    causal = results.get("prediction") == "left-to-right"
    verb = "generate" if causal else "score" if "prediction" in results else "predict"
    print(f"Try: {options.hint(verb, folder, modules=modules)}{'' if verb == 'generate' else ' < lines.txt'}")


def _show_likelihoods(results: dict[str, Any]) -> None:
    rows, kind = [], "likelihood"
    for split in ("valid", "test"):
        if split in results:
            scores, kind = results[split], results[split]["kind"]
            excess = (scores.get("language") or {}).get("excess") or {}
            row = [split, scores["tokens"], scores["loss"], scores["perplexity"], scores["bits_per_byte"]]
            rows.append([*row, excess.get("best"), _percent(excess.get("relative"))])
    names = [options.measure(key, kind) for key in ("tokens", "loss", "perplexity", "bits_per_byte")]
    columns = ["split", *names, "best loss", "above it"]
    if all(row[5] is None for row in rows):
        columns, rows = columns[:5], [row[:5] for row in rows]
    if rows:
        options.table("Scores (loss in nats)", columns, rows)
    context = results.get("valid", {}).get("context", "")
    if context.startswith("one stream") and "lanes" not in context and results.get("parameters"):
        print(f"Scored as {context}.\nValidations along the way read it in lanes that each start afresh.")
    judged = results.get("test") or results.get("valid") or {}
    agreement = (judged.get("language") or {}).get("agreement")
    if agreement:
        rows = [[entry["value"], entry["accuracy"] * 100, entry["words"]] for entry in agreement["by_distance"]]
        title = "Right form of the verb or bracket, by words between it and what decides it"
        options.table(title, ["distance", "% right", "cases"], rows)


def _show_measures(results: dict[str, Any]) -> None:
    """The figures of every split, with their intervals."""
    splits = [split for split in ("valid", "test") if split in results]
    rows = [
        [split, name, value, interval]
        for split in splits
        for name, value, interval in figures(results[split], "likelihood")
    ]
    if rows:
        options.table("Scores", ["split", "measure", "value", "95 % interval"], rows)


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:+.2%}"
