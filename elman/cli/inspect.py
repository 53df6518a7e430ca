"""elman inspect: what models can and cannot see."""

from pathlib import Path
from typing import Annotated

import typer

from elman.cli import microscope, options, views
from elman.cli.waiting import training_line
from elman.errors import RunError

app = typer.Typer(no_args_is_help=True, help="What models can and cannot see, and what passes inside them.")

Seed = Annotated[int, typer.Option(min=0, help="All dice come from this number.")]


@app.callback()
def inspect() -> None:
    pass


app.command("sites")(microscope.sites)
app.command("trace")(microscope.trace)
app.command("gradients")(microscope.gradients)
views.add_views(app)


@app.command("permutation")
def permutation(module: options.Module = None, json: options.Json = False) -> None:
    """Which layers see order: shuffle all tokens but the last, see whether its output changes."""
    from elman.inspection.permutation import permutation_table

    found = permutation_table()
    if json:
        options.show_json([one.plain() for one in found])
        return
    rows = [[one.name, one.layers, one.shuffled, one.changed, one.sees] for one in found]
    options.table("permutation", ["layer", "layers", "change", "changed", "sees"], rows)
    options.say("Change of the last output, relative to its size, when all tokens before it are shuffled; float64.")


@app.command("word-order")
def word_order(seed: Seed = 1, json: options.Json = False) -> None:
    """Who tells "good, not bad" from "bad, not good": a recurrent model, or a mean of word vectors."""
    from elman.inspection.word_order import PAIRS, PHRASES, word_order_table

    with training_line() as progress:
        found = word_order_table(seed, progress)
    if json:
        options.show_json([verdict.plain() for verdict in found])
        return
    rows = [
        [one.name, f"{one.accuracy:.1%}", f"{one.pairs:.1%}", *(f"{chance:.0%}" for chance in one.phrases.values())]
        for one in found
    ]
    options.table("word order", ["reads by", "sentences", "pairs", *PHRASES], rows)
    options.say(
        f"Sentences right, and pairs with both sentences right, of {PAIRS['test']} new pairs of the same words in "
        "another order; then how likely two phrases are said to be positive: the first is not, the second is."
    )


@app.command("bottleneck")
def bottleneck(
    size: Annotated[str, typer.Option(help="quick (half a minute) or full (some minutes).")] = "quick",
    seed: Seed = 1,
    to: Annotated[
        Path | None, options.option(help="Folder for pictures and numbers.", default="runs/bottleneck-<size>")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    json: options.Json = False,
) -> None:
    """How long a source one vector can hold, and what attention changes: reversal of 5 to 200 letters."""
    from elman.inspection.bottleneck import check_size, run_bottleneck
    from elman.inspection.bottleneck_figures import save_bottleneck
    from elman.runs.files import make_folder

    check_size(size)
    folder = to or Path("runs") / f"bottleneck-{size}"
    if (folder / "bottleneck.json").exists() and not force:
        raise RunError(f"{folder}: holds a bottleneck already; give another folder, or --force to replace it")
    make_folder(folder)  # a place that cannot be written to is better known before the training than after
    with training_line() as progress:
        found = run_bottleneck(size, seed, progress=progress)
    paths = save_bottleneck(found, folder, options.command())
    if json:
        options.show_json(found.plain())
        return
    heads = [str(length) for length in found.lengths]
    for title, measure in (("letters right", "accuracy"), ("sources without a mistake", "exact")):
        shares = [
            [outcome.name, *(f"{share:.0%}" for share in getattr(outcome, measure))] for outcome in found.outcomes
        ]
        options.table(title, ["reversal by length", *heads], shares)
    shortest, longest = found.trained
    options.say(f"Encoder (one-way or two-way) and width; trained on sources of {shortest} to {longest} letters.")
    options.say(f"Wrote {', '.join(path.name for path in paths)} to {folder}.")
