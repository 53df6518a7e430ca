"""elman inspect: what models can and cannot see."""

import typer

from elman.cli import options

app = typer.Typer(no_args_is_help=True, help="What models can and cannot see.")


@app.callback()
def inspect() -> None:
    pass


@app.command("permutation")
def permutation(json: options.Json = False) -> None:
    """Which layers see order: shuffle all tokens but the last, see whether its output changes."""
    from elman.inspection.permutation import permutation_table

    found = permutation_table()
    if json:
        options.show_json([sight.plain() for sight in found])
        return
    rows = [[sight.name, sight.layers, sight.shuffled, sight.changed, sight.sees] for sight in found]
    options.table("permutation", ["layer", "layers", "change", "changed", "sees"], rows)
    options.say("Change of the last output, relative to its size, when all tokens before it are shuffled; float64.")
