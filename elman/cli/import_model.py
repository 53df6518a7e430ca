"""elman import: a Hugging Face model as a run folder."""

from pathlib import Path

import typer

from elman.cli import options, output
from elman.cli.options import option
from elman.cli.verbs import verb


@verb("import")
def import_model(
    folder: Path = typer.Argument(
        ..., metavar="FOLDER", help="Hugging Face model folder on this disk, as save_pretrained writes it."
    ),
    run: Path | None = option(help="Run folder to write.", default="runs/<folder>"),
    json: bool = options.JSON,
) -> None:
    """Import a Hugging Face model (BERT, GPT-2, Llama, Mixtral or Mamba) as a run folder.

    Every verb works on it, except resuming its training; nothing is downloaded.
    """
    from dataclasses import asdict

    from elman.pipeline.importing import import_folder

    output.status(f"converting {folder}")
    brought = import_folder(folder, run)
    if json:
        return output.show_json({**asdict(brought), "run": str(brought.run)})
    print(
        f"Imported a {brought.architecture} model of {brought.parameters:,} parameters and {brought.vocab_size:,} "
        f"tokens into {brought.run}"
    )
    for note in brought.notes:
        print(f"Note: {note}")
    first = "score {} < lines.txt" if brought.masked else "generate {}"
    print(f"Try: elman {first.format(brought.run)}; elman eval {brought.run} --data my.txt")
