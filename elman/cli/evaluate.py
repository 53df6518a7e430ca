"""elman eval: how well a trained model predicts a text."""

from pathlib import Path
from typing import Annotated

import typer

from elman.cli import options


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data: Annotated[
        list[str] | None, options.option("--data", help=f"Text to score: {options.TEXT}", default="a split")
    ] = None,
    split: Annotated[
        str | None, options.option(help="Part of the run's own data: train, valid, test.", default="test, else valid")
    ] = None,
    lanes: Annotated[
        int | None,
        options.option(
            help="Pieces read at once: more are faster, with a little less context.", default="the recipe's"
        ),
    ] = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Perplexity per token and per word, bits per byte and per character, unknown words, loss by position."""
    from elman.pipeline.judging import evaluate_run

    scores = evaluate_run(run, data=data, split=split, lanes=lanes, device=device or "auto")
    if json:
        options.show_json(scores)
        return
    plain = {key: value for key, value in scores.items() if isinstance(value, int | float) and key != "nats"}
    kind = scores["kind"]
    rows = [[options.measure(key, kind), value] for key, value in plain.items()]
    options.table("Scores" if kind == "likelihood" else f"Scores ({kind})", ["measure", "value"], rows)
    print(f"Context: {scores['context']}.")
    for repair in scores["repairs"]:
        print(f"Repaired: {repair}.")
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
