"""elman eval: how well a trained model predicts a text."""

from pathlib import Path
from typing import Annotated

import typer

from elman.cli import options


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data: Annotated[list[str] | None, typer.Option("--data", help="Text to score; default: the run's test or validation split.")] = None,
    split: Annotated[str | None, typer.Option(help="A split of the run's own data: train, valid or test.")] = None,
    lanes: Annotated[int | None, typer.Option(help="Read a stream in so many pieces at once: faster, a little less context.")] = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Perplexity per token and per word, bits per byte and per character, unknown words, loss by position."""
    from elman.pipeline.judging import evaluate_run

    scores = evaluate_run(run, data=data, split=split, lanes=lanes, device=device or "auto")
    if json:
        options.show_json(scores)
        return
    plain = {key: value for key, value in scores.items() if isinstance(value, int | float | str)}
    options.table("Scores", ["measure", "value"], [[key.replace("_", " "), value] for key, value in plain.items()])
    if scores.get("by_position"):
        rows = [[f"{e['from']}–{e['to']}", e["loss"], e["tokens"]] for e in scores["by_position"]]
        options.table("Loss by position", ["position", "loss (nats)", "tokens"], rows)
    for key in ("by_distance", "agreement"):
        entries = scores.get("language", {}).get(key)
        if entries:
            options.table(key.replace("_", " "), list(entries[0]), [list(entry.values()) for entry in entries])
