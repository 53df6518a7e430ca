"""elman export: a trained model for other tools."""

from pathlib import Path

import typer

from elman.cli import options, output
from elman.cli.verbs import verb


@verb("export")
def export(
    run: Path = options.RUN,
    to: Path = typer.Option(..., help="Folder to write; with --format binary or arpa, a file."),
    format: str = typer.Option(
        "hugging-face",
        help="Format: c (a C library), binary (a program), hugging-face, torch (weights of torch.nn.RNN, GRU or LSTM), "
        "or arpa (an n-gram model).",
    ),
    weights: str = typer.Option("fp32", help="With --format c or binary: fp32, or int8 for a third of the size."),
    module: list[Path] | None = options.MODULE,
    json: bool = options.JSON,
) -> None:
    """Export a run's model and tokenizer: as a C library or a program, for transformers, for torch, or as an ARPA file.

    A C library and a program are compiled and checked against the run; a library is written without a C++ compiler too,
    but not checked.
    """
    from elman.export import export_run

    notes = export_run(run, to, format, weights)
    if json:
        return output.show_json({"folder": str(to), "format": format, "notes": notes})
    print(f"Exported {run} to {to}")
    for note in notes:
        print(note)
