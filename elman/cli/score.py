"""elman score: how likely is each line?"""

import json as jsonlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from elman.cli import options
from elman.errors import ConfigError


def score(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    form: Annotated[
        options.Form,
        typer.Option("--from", help="What stdin holds: a text (source and target: a tab between) or an object a line."),
    ] = "text",
    stream: Annotated[
        bool, typer.Option("--stream", help="Answer each line as soon as it comes, not many together.")
    ] = False,
    engine: Annotated[
        str | None, options.option(help="What reads a stream: auto, native (machine code) or torch.", default="auto")
    ] = None,
    weights: Annotated[
        str | None, options.option(help="Of the native engine: fp32, or int8 for speed.", default="fp32")
    ] = None,
    others: options.Others = None,
    module: options.Module = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Read lines on stdin; write log-probability (nats), bits per byte and the line, or one JSON object a line.

    A model that translates scores targets, given their sources: log-probability, that of a token in the mean, and both.
    """
    from elman.pipeline.trained_model import load

    if (engine or weights) and not stream:
        raise ConfigError("--engine and --weights say how a stream is read; add --stream")
    model = load(run, device or "auto", others or ())
    if not json and model.kind != "likelihood":
        print(f"note: {model.kind}: each token with both sides in sight; compares with its like only", file=sys.stderr)
    lines = options.read_objects(form)
    scores = model.follow(lines, engine or "auto", weights or "fp32", _tell) if stream else model.score(lines)
    with options.naming_input():
        for found in scores:
            print(jsonlib.dumps(found.plain(), ensure_ascii=False) if json else found.line(), flush=stream)


def _tell(engine: str) -> None:
    print(f"note: read by {engine}", file=sys.stderr)
