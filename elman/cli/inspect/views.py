"""Commands of `elman inspect` from the registry of views: each runs its function on a run and a text."""

from collections.abc import Callable
from contextlib import nullcontext
from inspect import Parameter
from pathlib import Path
from typing import Any, get_origin

import typer

from elman.cli import options, stdin
from elman.cli.inspect import app, run_views
from elman.cli.options import keyword, option, set_parameters
from elman.inspection.views import VIEWS, Option, View

FILE = typer.Option(..., "--data", help="Text file to read.")
LIMIT = typer.Option(20_000, min=100, help="Maximum number of characters to read.")


def command(view: View) -> Callable[..., None]:
    """A function with the signature that typer reads options from."""

    def run_view(run: Path, **given: Any) -> None:
        from elman.ops import taps

        found = run_views.load_model(run, given["device"])
        chosen = {one.parameter: given[one.parameter] for one in view.options if given[one.parameter] is not None}
        text = read(given["data"], given["limit"]) if view.reads == "file" else stdin.read_text(given["text"])
        precision = [given["precision"]] if view.precision else []
        changes = run_views.read_edits(given.get("edit"))
        inspected = found.reading(text, given.get("target"), *precision)
        if view.edits == "compare":
            chosen["changes"] = changes
        with taps.edit(changes) if view.edits == "apply" else nullcontext():
            figure = view.load()(inspected, ", ".join([found.of, *precision]), **chosen)
        run_views.deliver(figure, given["to"], given["json"], run)

    parameters = [keyword("run", Path, options.RUN)]
    if view.reads == "file":
        parameters += [keyword("data", Path, FILE), keyword("limit", int, LIMIT)]
    else:
        parameters += [keyword("text", str, run_views.TEXT), keyword("target", str | None, run_views.TARGET)]
    parameters += map(view_parameter, view.options)
    parameters += [keyword("precision", str, run_views.PRECISION)] if view.precision else []
    parameters += [keyword("edit", list[str] | None, run_views.EDITS)] if view.edits else []
    parameters += [keyword("to", Path | None, run_views.TO), keyword("module", list[Path] | None, options.MODULE)]
    parameters += [keyword("device", str | None, options.DEVICE), keyword("json", bool, options.JSON)]
    set_parameters(run_view, parameters)
    run_view.__doc__, run_view.__name__ = view.help, view.name
    return run_view


def view_parameter(one: Option) -> Parameter:
    if one.value is not None:
        return keyword(one.parameter, one.type, typer.Option(one.value, one.flag, help=one.help))
    help = f"{one.help} Repeatable." if get_origin(one.type) is list else one.help
    return keyword(one.parameter, one.type | None, option(one.flag, help=help, default=str(one.default)))


def read(path: Path, limit: int) -> str:
    from elman.errors import DataError

    try:
        return path.read_text(encoding="utf-8", errors="replace")[:limit]
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=path) from None


for _view in VIEWS:
    _command = command(_view)
    app.command(_view.name)(_command)
    for _alias in _view.aliases:
        app.command(_alias, hidden=True)(_command)
