"""elman eval: how well a trained model does on data; or two of them, side by side."""

from pathlib import Path
from typing import Annotated, Any

import typer

from elman.cli import options
from elman.errors import ConfigError


def evaluate(
    context: typer.Context,
    runs: Annotated[list[Path], typer.Argument(help="A run folder; or two of the same task, to compare.")],
    data: Annotated[
        list[str] | None, options.option("--data", help=f"What to judge on: {options.TEXT}", default="a split")
    ] = None,
    target: options.Target = None,
    columns: Annotated[str | None, options.option(help=options.COLUMNS, default="the run's own")] = None,
    split: Annotated[
        str | None, options.option(help="Part of the run's own data: train, valid, test.", default="test, else valid")
    ] = None,
    lanes: Annotated[
        int | None,
        options.option(
            help="Pieces read at once: more are faster, with a little less context.", default="the recipe's"
        ),
    ] = None,
    beam_size: Annotated[int | None, options.option(help="Of translations.", default="the recipe's")] = None,
    others: options.Others = None,
    module: options.Module = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """The scores of its task, with confidence intervals: perplexity and bits per byte; accuracy and F1; BLEU.

    How translations are looked for can be set as in a recipe: --search.length_penalty 1.
    """
    from elman.pipeline.evaluate import compare_runs, evaluate_run

    search = options.search_settings(context.obj, beam_size)
    asked: dict[str, Any] = {"data": data, "target": target, "columns": columns, "split": split, "lanes": lanes}
    asked |= {"search": search, "device": device or "auto", "others": others or ()}
    if len(runs) > 2:
        raise ConfigError(f"give one run, or two to compare, not {len(runs)}")
    if len(runs) == 2:
        found = compare_runs(*runs, **asked)
        options.show_json(found) if json else _show_difference(found)
        return
    scores = evaluate_run(runs[0], **asked)
    if json:
        options.show_json(scores)
        return
    show_scores(scores)
    for repair in scores["repairs"]:
        print(f"Repaired: {repair}.")
    for note in scores["notes"]:
        print(f"Note: {note}.")


def show_scores(scores: dict[str, Any]) -> None:
    """One table of figures with their intervals, and what else the task has to show."""
    kind = scores.get("kind", "likelihood")
    title = "Scores" if kind == "likelihood" else f"Scores ({kind})"
    rows = figures(scores, kind)
    if any(row[2] for row in rows):
        options.table(title, ["measure", "value", "95 % interval"], rows)
    else:
        options.table(title, ["measure", "value"], [row[:2] for row in rows])
    for key, value in scores.items():
        if key.endswith("_signature"):
            print(f"{options.measure(key, kind).removesuffix(' signature')}: {value}")
    if scores.get("context"):
        print(f"Context: {scores['context']}.")
    for key, name in (("per_label", "label"), ("per_type", "type")):
        if scores.get(key):
            found = scores[key]
            options.table(f"By {name}", list(found[0]), [list(entry.values()) for entry in found])
    if scores.get("confusion") and len(scores["confusion"]) <= 12:
        names = [entry["label"] for entry in scores["per_label"]]
        rows = [[name, *row] for name, row in zip(names, scores["confusion"], strict=True)]
        options.table("True label (rows) and answer (columns)", ["", *names], rows)
    _show_likelihood(scores)


def figures(scores: dict[str, Any], kind: str) -> list[list[Any]]:
    """Name, value and interval of every figure."""
    found = []
    for key, value in scores.items():
        if isinstance(value, int | float) and key != "nats":
            interval = scores.get(f"{key}_interval")
            shown = f"{options.number(interval[0])} to {options.number(interval[1])}" if interval else ""
            found.append([options.measure(key, kind), value, shown])
    return found


def _show_difference(found: dict[str, Any]) -> None:
    compared = {found["measure"]: found, **found["others"]}
    names = [options.measure(key, "likelihood") for key in compared]
    rows = [[run, *(scores[key] for key in compared)] for run, scores in found["runs"].items()]
    options.table("Two runs", ["run", *names], rows)
    for name, change in zip(names, compared.values(), strict=True):
        low, high = change["interval"]
        print(
            f"{name}, second minus first: {change['difference']:+.4f} (95 % interval {low:+.4f} to {high:+.4f}), "
            f"p = {change['p_value']:.4f} by paired bootstrap."
        )
    if "bleu" in found:
        one, other, p_value = found["bleu"].values()
        print(f"BLEU {one:.2f} and {other:.2f}: p = {p_value:.4f} by sacrebleu's paired bootstrap.")


def _show_likelihood(scores: dict[str, Any]) -> None:
    if scores.get("by_position"):
        rows = [[f"{span['start']} to {span['end']}", span["loss"], span["tokens"]] for span in scores["by_position"]]
        options.table("Loss by position", ["position", "loss (nats)", "tokens"], rows)
    language = scores.get("language") or {}
    if language.get("by_distance"):
        rows = [list(entry.values()) for entry in language["by_distance"]]
        options.table("Loss at marked words", ["distance", "loss (nats)", "the language's own", "cases"], rows)
    if language.get("agreement"):
        rows = [
            [entry["value"], entry["accuracy"] * 100, entry["words"]] for entry in language["agreement"]["by_distance"]
        ]
        options.table("Right form, by distance", ["distance", "% right", "cases"], rows)
