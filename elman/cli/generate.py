"""elman generate: let a trained model speak."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from elman.cli import options


def generate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    prompt: Annotated[str, typer.Option(help="Text to go on from; '-' reads it from stdin.")] = "",
    max_tokens: Annotated[int | None, options.option(help="Most tokens to write.", default="the recipe's")] = None,
    temperature: Annotated[
        float | None, options.option(help="0 always takes the likeliest token.", default="the recipe's")
    ] = None,
    top_k: Annotated[
        int | None, options.option(help="Draw among the k likeliest only.", default="the recipe's")
    ] = None,
    top_p: Annotated[
        float | None,
        options.option(help="Draw among the likeliest that together have this share.", default="the recipe's"),
    ] = None,
    repetition_penalty: Annotated[
        float | None, options.option(help="Above 1: recent tokens become less likely.", default="the recipe's")
    ] = None,
    stop: Annotated[
        list[str] | None, options.option(help="End before this text. Repeatable.", default="the recipe's")
    ] = None,
    seed: Annotated[
        int | None, options.option(help="The same seed writes the same text.", default="the recipe's")
    ] = None,
    engine: Annotated[
        str | None,
        options.option(
            help="What steps: auto, native (machine code), captured (GPU) or torch.", default="the recipe's"
        ),
    ] = None,
    weights: Annotated[
        str | None, options.option(help="Of the native engine: fp32, or int8 for speed.", default="the recipe's")
    ] = None,
    count: Annotated[int, typer.Option(help="How many texts.", min=1)] = 1,
    module: options.Module = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Go on from a prompt; text appears as it is written."""
    from elman.pipeline.trained_model import load

    given: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p}
    given |= {"repetition_penalty": repetition_penalty, "stop": stop, "seed": seed}
    given |= {"engine": engine, "weights": weights}
    settings = {key: value for key, value in given.items() if value is not None}
    model = load(run, device or "auto")
    text = "\n".join(options.read_lines()) if prompt == "-" else prompt
    if json:
        made = model.generate_batch([text] * count, **settings)
        texts = [
            {"text": one.text, "tokens": len(one.tokens), "log_prob": one.log_prob, "finished": one.finished}
            for one in made
        ]
        options.show_json({"prompt": text, **texts[0], "texts": texts} if count > 1 else {"prompt": text, **texts[0]})
    elif count > 1:
        print("\n---\n".join(text + one.text for one in model.generate_batch([text] * count, **settings)))
    else:
        pieces = model.stream(text, **settings)
        sys.stdout.write(text)
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
        sys.stdout.write("\n")
