"""elman export: a trained model for other tools."""

from pathlib import Path
from typing import Annotated

import typer

from elman.cli import options


def export(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    to: Annotated[Path, typer.Option(help="Folder to write.")],
    format: Annotated[str, typer.Option(help="What to write: hugging-face.")] = "hugging-face",
    module: options.Module = None,
    json: options.Json = False,
) -> None:
    """Write a run's model and tokenizer as a folder that other tools load."""
    from elman.pipeline.exporting import export_run

    notes = export_run(run, to, format)
    if json:
        options.show_json({"folder": str(to), "format": format, "notes": notes})
        return
    print(f"Exported {run} to {to}")
    for note in notes:
        print(note)
