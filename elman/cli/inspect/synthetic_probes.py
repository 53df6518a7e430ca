"""elman inspect permutation, word-order, bottleneck: probes that train small models or none, without a run folder."""

from pathlib import Path

import typer

from elman.cli import options, output
from elman.cli.inspect import app
from elman.cli.options import option
from elman.errors import RunError

SEED = typer.Option(1, min=0, help="Random seed.")


@app.command("permutation")
def permutation(module: list[Path] | None = options.MODULE, json: bool = options.JSON) -> None:
    """Test which layers see token order: shuffle all tokens but the last and compare the last output.

    Layers are untrained; takes seconds.
    """
    from elman.inspection.labs.permutation import permutation_table

    found = permutation_table()
    if json:
        return output.show_json([one.plain() for one in found])
    rows = [[one.name, one.layers, one.shuffled, one.changed, one.sees] for one in found]
    output.table("Permutation test", ["layer", "layers", "change", "changed", "sees order"], rows)
    output.say("Change: of the last output, relative to its norm, when all tokens before it are shuffled; in float64.")


@app.command("word-order")
def word_order(seed: int = SEED, json: bool = options.JSON) -> None:
    """Train a recurrent classifier and a bag of words to tell "good, not bad" from "bad, not good".

    Takes under a minute.
    """
    from elman.inspection.labs.word_order import PAIRS, PHRASES, word_order_table

    with output.training_status() as progress:
        found = word_order_table(seed, progress)
    if json:
        return output.show_json([one._asdict() for one in found])
    rows = [
        [one.name, f"{one.accuracy:.1%}", f"{one.pairs:.1%}", *(f"{chance:.0%}" for chance in one.phrases.values())]
        for one in found
    ]
    output.table("Word order", ["model", "sentences", "pairs", *PHRASES], rows)
    output.say(
        f"Accuracy on sentences, and on pairs (both right), of {PAIRS['test']} held-out pairs with the same words in "
        "another order; then the predicted probability of positive for two phrases: negative, then positive."
    )


@app.command("bottleneck")
def bottleneck(
    size: str = typer.Option("quick", help="quick (half a minute) or full (several minutes)."),
    seed: int = SEED,
    to: Path | None = option(help="Folder for figures and numbers.", default="runs/bottleneck-<size>"),
    force: bool = typer.Option(False, "--force", help="Overwrite existing files."),
    json: bool = options.JSON,
) -> None:
    """Train encoder-decoders with and without attention to reverse 5 to 200 letters: the fixed-vector bottleneck."""
    from elman.files import make_folder
    from elman.inspection.bottleneck import check_size, run_bottleneck, save_bottleneck

    check_size(size)
    folder = to or Path("runs") / f"bottleneck-{size}"
    if (folder / "bottleneck.json").exists() and not force:
        raise RunError(f"{folder}: holds results already; give another folder, or --force to overwrite them")
    make_folder(folder)  # before training, since it may fail
    with output.training_status() as progress:
        found = run_bottleneck(size, seed, progress=progress)
    paths = save_bottleneck(found, folder, options.command())
    if json:
        return output.show_json(found.plain())
    heads = [str(length) for length in found.lengths]
    for title, measure in (("letter accuracy", "accuracy"), ("exact match", "exact")):
        shares = [
            [outcome.name, *(f"{share:.0%}" for share in getattr(outcome, measure))] for outcome in found.outcomes
        ]
        output.table(f"Reversal by source length: {title}", ["encoder", *heads], shares)
    shortest, longest = found.trained
    output.say(
        f"Encoder: unidirectional or bidirectional, and width; trained on sources of {shortest} to {longest} letters."
    )
    output.say(f"Wrote {', '.join(path.name for path in paths)} to {folder}.")
