"""elman predict: what a trained model makes of each line."""

import json as jsonlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from elman.cli import options
from elman.errors import DataError

Form = Literal["text", "jsonl"]


def predict(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    form: Annotated[
        Form, typer.Option("--from", help="What stdin holds: a text a line, or an object a line (text, words, source).")
    ] = "text",
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also of all labels or tags; of translations, all candidates.")
    ] = False,
    beam_size: Annotated[int | None, options.option(help="Of translations.", default="the recipe's")] = None,
    others: options.Others = None,
    module: options.Module = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Read lines on stdin, answer each: its label, its words' tags, its translation, or what comes next.

    How translations are looked for can be set as in a recipe: --search.length_penalty 1.
    """
    from elman.pipeline.trained import load

    model = load(run, device or "auto", others or ())
    search = options.search_settings(context.obj, beam_size)
    for answer in model.predict(_lines(form), probabilities=probabilities, **search):
        print(jsonlib.dumps(answer, ensure_ascii=False) if json else model.task.plain(answer))
    sys.stdout.flush()


def _lines(form: Form) -> Iterator[Any]:
    for number, line in enumerate(options.read_lines(), start=1):
        if form == "text":
            yield line
            continue
        try:
            found = jsonlib.loads(line)
        except ValueError as error:
            raise DataError(f"not valid JSON: {error}", file="standard input", line=number) from None
        if not isinstance(found, dict):
            raise DataError("not a JSON object", file="standard input", line=number, remedy='write {"text": "..."}')
        yield found
