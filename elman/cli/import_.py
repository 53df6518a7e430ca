"""elman import: a model of others, ready for every verb but training on."""

from pathlib import Path
from typing import Annotated

import typer

from elman.cli import options


def import_model(
    folder: Annotated[Path, typer.Argument(help="A Hugging Face folder, as save_pretrained writes it.")],
    run: Annotated[Path | None, options.option(help="Run folder to make.", default="runs/<folder>")] = None,
    json: options.Json = False,
) -> None:
    """Make a run folder of a Hugging Face folder on this disk: BERT, GPT-2, Llama, Mixtral or Mamba."""
    from dataclasses import asdict

    from elman.pipeline.importing import import_folder

    brought = import_folder(folder, run)
    if json:
        options.show_json({**asdict(brought), "run": str(brought.run)})
        return
    print(
        f"Imported a {brought.architecture} model of {brought.parameters:,} parameters and {brought.vocab_size:,} "
        f"tokens into {brought.run}"
    )
    for note in brought.notes:
        print(f"Note: {note}")
    first = "score {} < lines.txt" if brought.masked else "generate {}"
    print(f"Try: elman {first.format(brought.run)}; elman eval {brought.run} --data my.txt")
