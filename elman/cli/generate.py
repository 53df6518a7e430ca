"""elman generate: text from a trained language model."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from elman.cli import options, output, stdin
from elman.cli.options import option
from elman.cli.verbs import verb

RECIPE = "the recipe's"


@verb("generate")
def generate(
    run: Path = options.RUN,
    prompt: str = typer.Option("", help="Text to continue; '-' reads it from stdin."),
    max_tokens: int | None = option(help="Maximum number of new tokens.", default=RECIPE),
    temperature: float | None = option(
        help="Divides the logits: below 1 is less random, 0 is greedy decoding.", default=RECIPE
    ),
    top_k: int | None = option(help="Sample from the k most probable tokens only; 0 is off.", default=RECIPE),
    top_p: float | None = option(
        help="Nucleus sampling: from the most probable tokens that together reach this probability; 1 is off.",
        default=RECIPE,
    ),
    min_p: float | None = option(
        help="Excludes tokens with less than this share of the most probable one's probability; 0 is off.",
        default=RECIPE,
    ),
    repetition_penalty: float | None = option(
        help="Above 1 makes recent tokens less probable; 1 is off.", default=RECIPE
    ),
    presence_penalty: float | None = option(
        help="Subtracted from the logits of tokens that were generated before; 0 is off.", default=RECIPE
    ),
    frequency_penalty: float | None = option(
        help="Subtracted from the logits of a token for each time it was generated before; 0 is off.", default=RECIPE
    ),
    stop: list[str] | None = option(help="Stop sequence: end before this text. Repeatable.", default=RECIPE),
    seed: int | None = option(help="Random seed: the same seed gives the same text.", default=RECIPE),
    unknown: bool = typer.Option(False, "--unknown", help="Draw <unk> too, the token of unknown words and characters."),
    engine: str | None = option(
        help="What computes a step: auto, native (compiled C++, CPU), captured (CUDA graph) or torch.", default=RECIPE
    ),
    weights: str | None = option(help="Weights of the native engine: fp32, or int8 (quantized).", default=RECIPE),
    count: int = typer.Option(1, help="Number of texts.", min=1),
    module: list[Path] | None = options.MODULE,
    device: str | None = options.DEVICE,
    json: bool = options.JSON,
) -> None:
    """Generate text from a prompt, printed token by token.

    Example: elman generate runs/mine --prompt "Once upon" --temperature 0.8 --max-tokens 200
    """
    from elman.pipeline.trained_model import load

    given: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p}
    given |= {"repetition_penalty": repetition_penalty, "stop": stop, "seed": seed}
    given |= {"min_p": min_p, "presence_penalty": presence_penalty, "frequency_penalty": frequency_penalty}
    given |= {"engine": engine, "weights": weights}
    given |= {"unknown": unknown or None}
    settings = {key: value for key, value in given.items() if value is not None}
    model = load(run, device or "auto")
    text = stdin.read_text(prompt)
    if json or count > 1:
        made = model.generate_batch([text] * count, **settings)
    else:
        pieces = model.stream(text, **settings)
    if not text and model.opening:
        output.note("the text follows a passage of held-out text, not shown; --prompt begins otherwise")
    if json:
        texts = [{**asdict(one), "tokens": len(one.tokens)} for one in made]
        output.show_json({"prompt": text, **texts[0], "texts": texts} if count > 1 else {"prompt": text, **texts[0]})
    elif count > 1:
        print("\n---\n".join(text + one.text for one in made))
    else:
        print(text, end="")
        for piece in pieces:
            print(piece, end="", flush=True)
        print()
