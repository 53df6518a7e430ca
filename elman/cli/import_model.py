"""elman import: a Hugging Face model, weights of plain torch, or an ARPA file as a run folder."""

from pathlib import Path

import typer

from elman.cli import options, output
from elman.cli.options import option
from elman.cli.verbs import verb
from elman.errors import ConfigError


@verb("import")
def import_model(
    folder: Path = typer.Argument(
        ...,
        metavar="SOURCE",
        help="Hugging Face model folder on this disk, as save_pretrained writes it; a state dict of torch as "
        "safetensors; what elman export wrote; or an n-gram model, model.arpa.",
    ),
    run: Path | None = option(help="Run folder to write.", default="runs/<name>"),
    nonlinearity: str | None = option(
        help="Of torch.nn.RNN, tanh or relu, which a state dict does not say.", default="tanh"
    ),
    json: bool = options.JSON,
) -> None:
    """Import a Hugging Face model (BERT, GPT-2, Llama, Mixtral or Mamba), torch weights or an ARPA file as a run.

    Every verb works on it, except resuming its training; nothing is downloaded. Weights of plain torch are an
    embedding, torch.nn.RNN, GRU or LSTM, and a linear layer, as safetensors; pickles are never read.
    """
    from dataclasses import asdict

    from elman.pipeline.importing import import_arpa, import_folder
    from elman.pipeline.importing_torch import FORMS, import_torch, is_exported

    output.status(f"converting {folder}")
    if folder.suffix in FORMS or is_exported(folder):
        brought = import_torch(folder, run, nonlinearity or "tanh")
    elif nonlinearity:
        raise ConfigError("--nonlinearity goes with weights of plain torch")
    else:
        brought = (import_arpa if folder.is_file() else import_folder)(folder, run)
    if json:
        return output.show_json({**asdict(brought), "run": str(brought.run)})
    size = f"{brought.parameters:,} {'n-grams' if brought.architecture == 'n-gram' else 'parameters'}"
    print(f"Imported a model ({brought.architecture}) of {size} and {brought.vocab_size:,} tokens into {brought.run}")
    for note in brought.notes:
        print(f"Note: {note}")
    first = "score {} < lines.txt" if brought.masked else "generate {}"
    print(f"Try: elman {first.format(brought.run)}; elman eval {brought.run} --data my.txt")
