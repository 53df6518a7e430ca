"""elman import: a Hugging Face model or an ARPA file as a run folder."""

from pathlib import Path

import typer

from elman.cli import options, output
from elman.cli.options import option
from elman.cli.verbs import verb


@verb("import")
def import_model(
    folder: Path = typer.Argument(
        ...,
        metavar="FOLDER",
        help="Hugging Face model folder on this disk, as save_pretrained writes it; or an n-gram model, model.arpa.",
    ),
    run: Path | None = option(help="Run folder to write.", default="runs/<name>"),
    json: bool = options.JSON,
) -> None:
    """Import a Hugging Face model (BERT, GPT-2, Llama, Mixtral or Mamba) or an ARPA file as a run folder.

    Every verb works on it, except resuming its training; nothing is downloaded.
    """
    from dataclasses import asdict

    from elman.pipeline.importing import import_arpa, import_folder

    output.status(f"converting {folder}")
    brought = (import_arpa if folder.is_file() else import_folder)(folder, run)
    if json:
        return output.show_json({**asdict(brought), "run": str(brought.run)})
    size = f"{brought.parameters:,} {'n-grams' if brought.architecture == 'n-gram' else 'parameters'}"
    print(f"Imported a model ({brought.architecture}) of {size} and {brought.vocab_size:,} tokens into {brought.run}")
    for note in brought.notes:
        print(f"Note: {note}")
    first = "score {} < lines.txt" if brought.masked else "generate {}"
    print(f"Try: elman {first.format(brought.run)}; elman eval {brought.run} --data my.txt")
