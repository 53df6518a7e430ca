"""elman predict: what a trained model makes of each line."""

import json as jsonlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from elman.cli import options


def predict(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    form: Annotated[
        options.Form,
        typer.Option("--from", help="What stdin holds: a text a line, or an object a line (text, words, source)."),
    ] = "text",
    probabilities: Annotated[
        bool,
        typer.Option(
            "--probabilities",
            help="Also of all labels or tags. Of translations all candidates, the answer first: number of the line, "
            "rank, score, log-probability, text.",
        ),
    ] = False,
    beam_size: Annotated[int | None, options.option(help="Of translations.", default="the recipe's")] = None,
    others: options.Others = None,
    module: options.Module = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Read lines on stdin, answer each: its label, its words' tags, its translation, or what comes next.

    How translations are looked for can be set as in a recipe: --search.length_penalty 1. Where an object has a target
    beside its source, --json also gives that one's log-probability.
    """
    from elman.pipeline.trained_model import load

    model = load(run, device or "auto", others or ())
    search = options.search_settings(context.obj, beam_size)
    with options.naming_input():
        for answer in model.predict(options.read_objects(form), probabilities=probabilities, **search):
            print(jsonlib.dumps(answer, ensure_ascii=False) if json else model.task.prediction.format(answer))
    sys.stdout.flush()
