"""elman score: log-probabilities of lines of stdin."""

import json as jsonlib
import sys
from pathlib import Path

import typer

from elman.cli import options, stdin
from elman.cli.options import option
from elman.cli.verbs import verb
from elman.errors import ConfigError


@verb("score")
def score(
    run: Path = options.RUN,
    form: options.InputFormat = typer.Option(
        "text",
        "--from",
        help="Format of stdin: text (one per line; translation: source, tab, target) or jsonl (objects).",
    ),
    stream: bool = typer.Option(
        False, "--stream", help="Score each line as soon as it arrives, instead of in batches."
    ),
    engine: str | None = option(help="With --stream: auto, native (compiled C++) or torch.", default="auto"),
    weights: str | None = option(help="Weights of the native engine: fp32, or int8 (quantized).", default="fp32"),
    others: list[Path] | None = options.OTHERS,
    module: list[Path] | None = options.MODULE,
    device: str | None = options.DEVICE,
    json: bool = options.JSON,
) -> None:
    """Score every line of stdin: prints log-probability (nats), bits per byte and the line, or a JSON object.

    A translator scores the target given the source: log-probability, mean log-probability per token, and both texts.

    Example: elman score runs/mine < lines.txt
    """
    from elman.pipeline.trained_model import load

    if (engine or weights) and not stream:
        raise ConfigError("--engine and --weights apply to --stream only; add --stream")
    model = load(run, device or "auto", others or ())
    if not json and model.kind != "likelihood":
        note = f"note: {model.kind}: each token given both sides; compare it with other pseudo-likelihoods only"
        print(note, file=sys.stderr)

    def show_engine(engine: str) -> None:
        print(f"note: engine {engine}", file=sys.stderr)

    lines = stdin.read_objects(form)
    scores = model.follow(lines, engine or "auto", weights or "fp32", show_engine) if stream else model.score(lines)
    with stdin.naming_input():
        for found in scores:
            print(jsonlib.dumps(found.plain(), ensure_ascii=False) if json else found.line(), flush=stream)
