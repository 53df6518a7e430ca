"""elman eval: scores of a trained model on data, or of two models compared."""

from pathlib import Path
from typing import Any

import typer

from elman.cli import options, output
from elman.cli.options import option
from elman.cli.verbs import verb
from elman.errors import ConfigError


@verb("eval", settings="search")
def evaluate(
    context: typer.Context,
    runs: list[Path] = typer.Argument(
        ..., metavar="RUN", help="A run folder; two run folders of the same task are compared."
    ),
    data: list[str] | None = option(
        "--data", help=f"Data to evaluate on: {options.SOURCES}", default="a split of the run's data"
    ),
    target: list[str] | None = options.TARGET,
    columns: str | None = option(help=options.COLUMNS, default="those of training"),
    split: str | None = option(help="Split of the run's own data: train, valid or test.", default="test, else valid"),
    lanes: int | None = option(
        help="Language models: parallel streams that the text is cut into. More are faster; each starts with fresh "
        "state, so a little context is lost. 1 scores the whole text as one stream.",
        default="the recipe's",
    ),
    beam_size: int | None = options.BEAM_SIZE,
    others: list[Path] | None = options.OTHERS,
    module: list[Path] | None = options.MODULE,
    device: str | None = options.DEVICE,
    json: bool = options.JSON,
) -> None:
    """Evaluate a trained model, with 95 % confidence intervals; compare two by paired bootstrap.

    Scores by task: perplexity and bits per byte; accuracy and F1; BLEU. Search settings of translation are options as
    in a recipe: --search.length_penalty 1.

    Example: elman eval runs/mine --data other.txt
    """
    from elman.pipeline.evaluate import compare_runs, evaluate_run

    search = options.search_settings(context.obj, beam_size)
    asked: dict[str, Any] = {"data": data, "target": target, "columns": columns, "split": split, "lanes": lanes}
    asked |= {"search": search, "device": device or "auto", "others": others or ()}
    if len(runs) > 2:
        raise ConfigError(f"give one run folder, or two to compare, not {len(runs)}")
    output.status(f"evaluating {' and '.join(map(str, runs))}; a large split may take minutes")
    if len(runs) == 2:
        found = compare_runs(*runs, **asked)
        return output.show_json(found) if json else _show_difference(found)
    scores = evaluate_run(runs[0], **asked)
    if json:
        return output.show_json(scores)
    show_scores(scores)
    for repair in scores["repairs"]:
        print(f"Repaired: {repair}.")
    for note in scores["notes"]:
        print(f"Note: {note}.")


def show_scores(scores: dict[str, Any]) -> None:
    """A table of scores with confidence intervals, then tables by label, position or distance where there are any."""
    kind = scores.get("kind", "likelihood")
    title = "Scores" if kind == "likelihood" else f"Scores ({kind})"
    rows = output.score_rows(scores, kind)
    if any(row[2] for row in rows):
        output.table(title, ["measure", "value", "95 % interval"], rows)
    else:
        output.table(title, ["measure", "value"], [row[:2] for row in rows])
    for key, value in scores.items():
        if key.endswith("_signature"):
            print(f"{output.measure(key, kind).removesuffix(' signature')}: {value}")
    if scores.get("context"):
        print(f"Context: {scores['context']}.")
    for key, name in (("per_label", "label"), ("per_type", "type")):
        if scores.get(key):
            found = scores[key]
            output.table(f"By {name}", list(found[0]), [list(entry.values()) for entry in found])
    if scores.get("confusion") and len(scores["confusion"]) <= 12:
        names = [entry["label"] for entry in scores["per_label"]]
        rows = [[name, *row] for name, row in zip(names, scores["confusion"], strict=True)]
        output.table("Confusion matrix: true label (rows), predicted label (columns)", ["", *names], rows)
    _show_likelihood(scores)


def _show_difference(found: dict[str, Any]) -> None:
    compared = {found["measure"]: found, **found["others"]}
    names = [output.measure(key, "likelihood") for key in compared]
    rows = [[run, *(scores[key] for key in compared)] for run, scores in found["runs"].items()]
    output.table("Two runs", ["run", *names], rows)
    for name, change in zip(names, compared.values(), strict=True):
        shown = f"{name}, second minus first: {change['difference']:+.4f}"
        if change["interval"] is None:
            print(f"{shown}. Too few units for an interval or a test.")
            continue
        low, high = change["interval"]
        chance = f"p = {change['p_value']:.4f} by paired bootstrap"
        print(f"{shown} (95 % interval {low:+.4f} to {high:+.4f}), {chance}.")
    if "bleu" in found:
        one, other, p_value = found["bleu"].values()
        print(f"BLEU {one:.2f} and {other:.2f}: p = {p_value:.4f} by sacrebleu's paired bootstrap.")


def _show_likelihood(scores: dict[str, Any]) -> None:
    if scores.get("by_position"):
        rows = [[f"{span['start']} to {span['end']}", span["loss"], span["tokens"]] for span in scores["by_position"]]
        output.table("Loss by position", ["position", "loss (nats)", "tokens"], rows)
    language = scores.get("language") or {}
    if language.get("by_distance"):
        rows = [list(entry.values()) for entry in language["by_distance"]]
        output.table("Loss at marked words", ["distance", "loss (nats)", "entropy (nats)", "cases"], rows)
    if language.get("agreement"):
        output.agreement_table("Agreement accuracy by distance", language["agreement"])
