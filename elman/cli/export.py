"""elman export: a trained model for other tools."""

from pathlib import Path

import typer

from elman.cli import options, output
from elman.cli.verbs import verb


@verb("export")
def export(
    run: Path = options.RUN,
    to: Path = typer.Option(..., help="Folder to write; with --format arpa, a file."),
    format: str = typer.Option(
        "hugging-face",
        help="Format: hugging-face, torch (weights of torch.nn.RNN, GRU or LSTM), or arpa (an n-gram model).",
    ),
    module: list[Path] | None = options.MODULE,
    json: bool = options.JSON,
) -> None:
    """Export a run's model and tokenizer: for transformers, for plain torch, or as an ARPA file."""
    from elman.pipeline.exporting import export_run

    notes = export_run(run, to, format)
    if json:
        return output.show_json({"folder": str(to), "format": format, "notes": notes})
    print(f"Exported {run} to {to}")
    for note in notes:
        print(note)
