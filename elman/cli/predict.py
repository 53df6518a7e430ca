"""elman predict: labels, tags, translations or continuations for lines of stdin."""

import json as jsonlib
import sys
from pathlib import Path

import typer

from elman.cli import options, stdin
from elman.cli.verbs import verb


@verb("predict", settings="search")
def predict(
    context: typer.Context,
    run: Path = options.RUN,
    form: options.InputFormat = typer.Option(
        "text", "--from", help="Format of stdin: text (one per line) or jsonl (objects with text, words or source)."
    ),
    probabilities: bool = typer.Option(
        False,
        "--probabilities",
        help="Print the probabilities of all labels or tags too. Translation: all candidates of the beam, best "
        "first, as line number, rank, score, log-probability and text.",
    ),
    beam_size: int | None = options.BEAM_SIZE,
    others: list[Path] | None = options.OTHERS,
    module: list[Path] | None = options.MODULE,
    device: str | None = options.DEVICE,
    json: bool = options.JSON,
) -> None:
    """Predict for every line of stdin: its label, its tags, its translation, or the most probable next tokens.

    Search settings of translation are options as in a recipe: --search.length_penalty 1. If an object has a target
    beside its source, --json also gives the log-probability of that target.

    Example: elman predict runs/classifier --probabilities < lines.txt
    """
    from elman.pipeline.trained_model import load

    model = load(run, device or "auto", others or ())
    search = options.search_settings(context.obj, beam_size)
    with stdin.naming_input():
        for answer in model.predict(stdin.read_objects(form), probabilities=probabilities, **search):
            print(jsonlib.dumps(answer, ensure_ascii=False) if json else model.task.format(answer))
    sys.stdout.flush()
