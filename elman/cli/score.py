"""elman score: how likely is each line?"""

import json as jsonlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from elman.cli import options


def score(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    module: options.Module = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Read lines on stdin; write log-probability (nats), bits per byte and the line, or one JSON object a line."""
    from elman.pipeline.trained import load

    model = load(run, device or "auto")
    if not json and model.kind != "likelihood":
        print(f"note: {model.kind}: each token with both sides in sight; compares with its like only", file=sys.stderr)
    for found in model.score(options.read_lines()):
        if json:
            print(jsonlib.dumps(found.plain(), ensure_ascii=False))
        else:
            print(f"{found.log_prob:.4f}\t{found.bits_per_byte:.4f}\t{found.text}")
