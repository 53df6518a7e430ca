"""Commands of `elman inspect` from the registry of views: each runs its function on a run and a text."""

from collections.abc import Callable
from contextlib import nullcontext
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from elman.cli import options
from elman.cli.inspect import app, run_views
from elman.inspection.views import VIEWS, Option, View

File = Annotated[Path, typer.Option("--data", help="Text file to read.")]
Limit = Annotated[int, typer.Option(min=100, help="Maximum number of characters to read.")]


def command(view: View) -> Callable[..., None]:
    """A function with the signature that typer reads options from."""

    def run_view(run: Path, **given: Any) -> None:
        found = run_views.load_model(run, given["device"])
        chosen = {one.parameter: given[one.parameter] for one in view.options if given[one.parameter] is not None}
        text = read(given["data"], given["limit"]) if view.reads == "file" else run_views.read_text(given["text"])
        precision = [given["precision"]] if view.precision else []
        changes = run_views.read_edits(given.get("edit"))
        inspected = found.reading(text, given.get("target"), *precision)
        if view.edits == "compare":
            chosen["changes"] = changes
        with run_views.editing(given["edit"]) if view.edits == "apply" else nullcontext():
            figure = view.load()(inspected, ", ".join([found.of, *precision]), **chosen)
        run_views.deliver(figure, given["to"], given["json"], run)

    parameters: list[tuple[str, Any, Any]] = [("run", run_views.Run, Parameter.empty)]
    if view.reads == "file":
        parameters += [("data", File, Parameter.empty), ("limit", Limit, 20_000)]
    else:
        parameters += [("text", run_views.Text, Parameter.empty), ("target", run_views.Target, None)]
    parameters += [(one.parameter, annotation(one), one.default) for one in view.options]
    parameters += [("precision", run_views.Precision, "float32")] if view.precision else []
    parameters += [("edit", run_views.Edits, None)] if view.edits else []
    parameters += [("to", run_views.To, None), ("module", options.Module, None), ("device", options.Device, None)]
    parameters += [("json", options.Json, False)]
    run_view.__doc__, run_view.__name__ = view.help, view.name
    run_view.__annotations__ = {name: kind for name, kind, _ in parameters}
    run_view.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=kind, default=default)
            for name, kind, default in parameters
        ]
    )
    return run_view


def annotation(option: Option) -> Any:
    if option.default is not None:
        return Annotated[option.type, typer.Option(option.flag, help=option.help)]
    return Annotated[option.type | None, options.option(option.flag, help=option.help, default=option.default_text)]


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
