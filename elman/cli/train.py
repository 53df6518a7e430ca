"""elman train: trains and evaluates a model, and writes a run folder."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from elman.cli import options, output
from elman.cli.options import option
from elman.cli.recipe_options import RECIPE_FILE, RecipeOptions, takes_recipe_options
from elman.cli.verbs import verb


@verb("train", settings="recipe")
@takes_recipe_options()
def train(
    context: typer.Context,
    chosen: RecipeOptions,
    recipe: Path | None = RECIPE_FILE,
    run: Path | None = option(help="Run folder to write: weights, tokenizer, log.", default="runs/<data>-<model>"),
    resume: bool = typer.Option(
        False, "--resume", help="Continue the run in --run from its last checkpoint; start it if it is new."
    ),
    print_config: bool = typer.Option(
        False, "--print-config", help="Print the complete recipe and exit, without training."
    ),
    tensorboard: bool = typer.Option(False, "--tensorboard", help="Log to TensorBoard too, in the run folder."),
    wandb: bool = typer.Option(False, "--wandb", help="Log to Weights & Biases too."),
    json: bool = options.JSON,
) -> None:
    """Train a model and evaluate it.

    Every recipe setting is an option: --training.learning_rate 3e-4 --model.dropout 0.2; `elman init` lists them all.
    Without data it trains on a synthetic language, in about a minute.

    Example: elman train --data my.txt --model gru --run runs/mine
    """
    from elman.pipeline import tracking
    from elman.pipeline.recipe import write_recipe
    from elman.pipeline.resume import kept_widths, source_of
    from elman.pipeline.session import default_run

    source = source_of(recipe, run, resume)
    built = chosen.build_recipe(source, context.obj, kept_widths(run, resume))
    if print_config:
        print(write_recipe(built), end="")
        return
    if source is None and built.data.language and not any("data.language" in word for word in context.obj):
        kind = built.data.language["type"]
        output.note(f"no --data: training on a built-in synthetic language ({kind}), whose entropy is known")
    folder = run or default_run(built)
    listeners: list[Any] = [tracking.TensorBoard(folder)] if tensorboard else []
    listeners += [tracking.Wandb(folder, built)] if wandb else []
    run_training(built, folder, resume=resume, listeners=listeners, modules=chosen.modules, json=json)


def run_training(
    recipe: Any,
    folder: Path,
    *,
    resume: bool = False,
    listeners: Iterable[Any] = (),
    modules: Iterable[Path] | None = (),
    json: bool = False,
) -> None:
    """Trains with live progress on stderr; results go to stdout, as tables or JSON."""
    from elman.pipeline.progress import Progress
    from elman.pipeline.session import iterate
    from elman.training.loop import INTERRUPTED

    results: dict[str, Any] = {}
    reason = ""
    output.status("reading the data and building the model")
    try:
        with Progress() as progress:
            for report in iterate(recipe, run=folder, resume=resume, listeners=[*listeners, progress]):
                reason = report.values["reason"] if report.kind == "end" else reason
                results = report.values if report.kind == "result" else results
    except KeyboardInterrupt:
        reason = INTERRUPTED
    if reason == INTERRUPTED:
        if (folder / "config.yaml").exists():
            again = options.hint("train", "--run", folder, "--resume", modules=modules)
            output.interrupted(f"continue with: {again}")
        raise typer.Exit(130)
    if json and results:
        output.show_json({"run": str(folder), **results})
    elif results:
        show_results(folder, results, modules)


def show_results(folder: Path, results: dict[str, Any], modules: Iterable[Path] | None = ()) -> None:
    """Tables of scores and samples, speed, goals, and the command to try next."""
    if "prediction" in results:
        _show_likelihoods(results)
    else:
        _show_measures(results)
    if results.get("samples"):
        output.table("Samples", ["text"], [[text.strip("\n")] for text in results["samples"]], lines=True)
    if results.get("tokens_per_second"):
        print(f"Speed: {results['tokens_per_second']:,.0f} training {results['speed_unit']} per second.")
    for goal in results.get("goals", []):
        limit = f"at most {goal['at_most']}" if goal["at_most"] is not None else f"at least {goal['at_least']}"
        verdict = "met" if goal["met"] else "NOT met"
        print(f"Goal {goal['measure']} {limit}: {verdict} ({output.number(goal['value'])}).")
    for note in results.get("notes", []):
        print(f"Note: {note}.")
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
            relative = excess.get("relative")
            rows.append([*row, excess.get("best"), None if relative is None else f"{relative:+.2%}"])
    names = [output.measure(key, kind) for key in ("tokens", "loss", "perplexity", "bits_per_byte")]
    columns = ["split", *names, "entropy", "loss above it"]
    if all(row[5] is None for row in rows):
        columns, rows = columns[:5], [row[:5] for row in rows]
    if rows:
        output.table("Scores (loss in nats)", columns, rows)
    context = results.get("valid", {}).get("context", "")
    if context.startswith("one stream") and "parallel" not in context and results.get("parameters"):
        print(f"Evaluated as {context}.\nValidation during training uses parallel streams with fresh state.")
    judged = results.get("test") or results.get("valid") or {}
    agreement = (judged.get("language") or {}).get("agreement")
    if agreement:
        title = "Agreement accuracy (verb form or bracket), by words between it and the word that decides it"
        output.agreement_table(title, agreement)


def _show_measures(results: dict[str, Any]) -> None:
    """The scores of every split, with confidence intervals."""
    splits = [split for split in ("valid", "test") if split in results]
    rows = [[split, *row] for split in splits for row in output.score_rows(results[split], "likelihood")]
    if rows:
        output.table("Scores", ["split", "measure", "value", "95 % interval"], rows)
