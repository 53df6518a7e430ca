"""elman inspect views of a run: recorded values, gradients, predictions and attention while the model reads a text.

Most commands come from the registry of views: each runs its function on a run and a text.
"""

import shutil
import sys
from collections.abc import Callable
from contextlib import nullcontext
from inspect import Parameter
from pathlib import Path
from typing import Any, get_origin

import typer

from elman.cli import options, output, stdin
from elman.cli.inspect import app
from elman.cli.options import keyword, option, set_parameters
from elman.errors import ConfigError, DataError
from elman.inspection.views import VIEWS, Option, View

TEXT = typer.Option(..., "--text", help="Text that the model reads; '-' reads it from stdin.")
TARGET = option(help="Translation: target text to analyse.", default="the model's own translation")
TO = option("--to", help="File to write: .html, .svg, .png, .csv, .json or .txt.", default="the terminal")
PRECISION = typer.Option("float32", help="Floating-point type of the computation: float32 or float64.")
FILE = typer.Option(..., "--data", help="Text file to read.")
LIMIT = typer.Option(20_000, min=100, help="Maximum number of characters to read.")
EDITS = option(
    "--edit",
    help="Set a recorded value while reading: SITE=NUMBER, or SITE@3=NUMBER at position 3. Repeatable.",
    default="none",
)


@app.command("sites")
def sites(
    run: Path = options.RUN,
    module: list[Path] | None = options.MODULE,
    device: str | None = options.DEVICE,
    json: bool = options.JSON,
) -> None:
    """List the sites of a model (values that can be recorded or edited) with shape and meaning."""
    from elman.inspection.trace import site_descriptions

    model = load_model(run, device)
    found = model.sites()
    meanings = site_descriptions(model.model, list(found))
    if json:
        return output.show_json(
            [{"site": site, "shape": shape, "meaning": meanings[site]} for site, shape in found.items()]
        )
    for site, shape in found.items():
        print(f"{site}  {' × '.join(map(str, shape)) or '1'}")
        if meanings[site]:
            print(f"    {meanings[site]}")


@app.command("trace")
def trace(
    run: Path = options.RUN,
    text: str = TEXT,
    site: list[str] | None = option(
        "--sites", help="Sites to show, by name or pattern: '*.gate.*'. Repeatable.", default="gates and states"
    ),
    target: str | None = TARGET,
    edit: list[str] | None = EDITS,
    to: Path | None = TO,
    module: list[Path] | None = options.MODULE,
    device: str | None = options.DEVICE,
    json: bool = options.JSON,
) -> None:
    """Show gates and states at every token of a text, as heat maps; .safetensors saves the arrays."""
    from elman.ops import taps

    model = load_model(run, device)
    with taps.edit(read_edits(edit)):
        found = model.trace(stdin.read_text(text), site or ("*",), target)
    if to is not None and to.suffix == ".safetensors":
        output.say(f"Wrote {found.save(to)}.")
        return
    deliver(found.figure(*(site or ())), to, json, run)


@app.command("gradients")
def gradients(
    run: Path | None = typer.Argument(
        None, metavar="RUN", help="Run folder; without one, untrained layers are measured."
    ),
    text: str | None = option(help="With a run: text that the model reads; '-' reads it from stdin.", default="none"),
    model: list[str] | None = option(
        "--model",
        help="Untrained layer with settings: lstm:forget_bias=3. Also radius=R (spectral radius of the recurrent "
        "weights), scale=S (of the inputs) and open.GATE=B (bias of a gate). Repeatable.",
        default="a selection",
    ),
    hidden: int = typer.Option(64, min=1, help="Hidden size of untrained layers."),
    length: int = typer.Option(200, min=2, help="Sequence length for untrained layers, in steps."),
    precision: str = PRECISION,
    seed: int = typer.Option(0, min=0, help="Random seed of untrained layers."),
    target: str | None = TARGET,
    to: Path | None = TO,
    module: list[Path] | None = options.MODULE,
    device: str | None = options.DEVICE,
    json: bool = options.JSON,
) -> None:
    """Measure gradient norms over distance in time, of a run on a text or of untrained layers."""
    from elman.inspection import gradient_decay
    from elman.inspection.gradients import gradient_decay_figure, gradient_figure

    if run is not None:
        if text is None:
            raise ConfigError("a run needs a text to read: --text '...'")
        found = load_model(run, device)
        inspected = found.reading(stdin.read_text(text), target, precision)
        deliver(gradient_figure(inspected, f"{found.of}, {precision}"), to, json, run)
        return
    layers = [gradient_decay.UntrainedLayer.parse(one) for one in model or gradient_decay.DEFAULT_LAYERS]
    deliver(gradient_decay_figure(layers, length, hidden, seed, precision), to, json)


def load_model(run: Path, device: str | None) -> Any:
    from elman.pipeline import load

    return load(run, device or "auto")


def read_edits(edits: list[str] | None) -> dict[str, float]:
    changes = {}
    for text in edits or []:
        site, equals, number = text.rpartition("=")
        try:
            changes[site.strip()] = float(number)
        except ValueError:
            equals = ""
        if not equals or not site:
            raise ConfigError(f"--edit {text!r}: write SITE=NUMBER, such as layers.0.lstm.gate.forget@3=1")
    return changes


def deliver(figure: Any, to: Path | None, json: bool, run: Path | None = None) -> None:
    """Writes a figure to a file, as JSON, or to the terminal."""
    from dataclasses import replace

    from elman.figures.terminal import supports_colour

    of = ": ".join(str(part) for part in (run, figure.subtitle) if part)
    figure = replace(figure, subtitle=of).with_command(options.command())
    if json:
        output.show_json(figure.plain())
    if to is not None:
        path = figure.save(to)
        if not json:
            for note in figure.notes:
                output.say(note)
            output.say(f"Wrote {path}.")
    elif not json:
        print(figure.text(shutil.get_terminal_size().columns, supports_colour(sys.stdout)), end="")


def command(view: View) -> Callable[..., None]:
    """A function with the signature that typer reads options from."""

    def run_view(run: Path, **given: Any) -> None:
        from elman.ops import taps

        found = load_model(run, given["device"])
        chosen = {one.parameter: given[one.parameter] for one in view.options if given[one.parameter] is not None}
        text = read(given["data"], given["limit"]) if view.reads == "file" else stdin.read_text(given["text"])
        precision = [given["precision"]] if view.precision else []
        changes = read_edits(given.get("edit"))
        inspected = found.reading(text, given.get("target"), *precision)
        if view.edits == "compare":
            chosen["changes"] = changes
        with taps.edit(changes) if view.edits == "apply" else nullcontext():
            figure = view.load()(inspected, ", ".join([found.of, *precision]), **chosen)
        deliver(figure, given["to"], given["json"], run)

    parameters = [keyword("run", Path, options.RUN)]
    if view.reads == "file":
        parameters += [keyword("data", Path, FILE), keyword("limit", int, LIMIT)]
    else:
        parameters += [keyword("text", str, TEXT), keyword("target", str | None, TARGET)]
    parameters += map(view_parameter, view.options)
    parameters += [keyword("precision", str, PRECISION)] if view.precision else []
    parameters += [keyword("edit", list[str] | None, EDITS)] if view.edits else []
    parameters += [keyword("to", Path | None, TO), keyword("module", list[Path] | None, options.MODULE)]
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
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:limit]
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=path) from None


def add_views() -> None:
    """Adds the commands of the registry to the app."""
    for view in VIEWS:
        run_view = command(view)
        app.command(view.name)(run_view)
        for alias in view.aliases:
            app.command(alias, hidden=True)(run_view)
