"""elman inspect views of a run: recorded values, gradients, predictions and attention while the model reads a text."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from elman.cli import options, output, stdin
from elman.cli.inspect import app
from elman.errors import ConfigError

Run = options.RunFolder
Text = Annotated[str, typer.Option("--text", help="Text that the model reads; '-' reads it from stdin.")]
Target = Annotated[
    str | None, options.option(help="Translation: target text to analyse.", default="the model's own translation")
]
To = Annotated[
    Path | None,
    options.option("--to", help="File to write: .html, .svg, .png, .csv, .json or .txt.", default="the terminal"),
]
Precision = Annotated[str, typer.Option(help="Floating-point type of the computation: float32 or float64.")]
Edits = Annotated[
    list[str] | None,
    options.option(
        "--edit",
        help="Set a recorded value while reading: SITE=NUMBER, or SITE@3=NUMBER at position 3. Repeatable.",
        default="none",
    ),
]


@app.command("sites")
def sites(run: Run, module: options.Module = None, device: options.Device = None, json: options.Json = False) -> None:
    """List the sites of a model (values that can be recorded or edited) with shape and meaning."""
    from elman.inspection.trace import meanings
    from elman.pipeline import load

    model = load(run, device or "auto")
    found = model.sites()
    told = meanings(model.model, list(found))
    if json:
        output.show_json([{"site": site, "shape": shape, "meaning": told[site]} for site, shape in found.items()])
        return
    for site, shape in found.items():
        print(f"{site}  {' × '.join(map(str, shape)) or '1'}")
        if told[site]:
            print(f"    {told[site]}")


@app.command("trace")
def trace(
    run: Run,
    text: Text,
    site: Annotated[
        list[str] | None,
        options.option(
            "--sites", help="Sites to show, by name or pattern: '*.gate.*'. Repeatable.", default="gates and states"
        ),
    ] = None,
    target: Target = None,
    edit: Edits = None,
    to: To = None,
    module: options.Module = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Show gates and states at every token of a text, as heat maps; .safetensors saves the arrays."""
    model = load_model(run, device)
    with editing(edit):
        found = model.trace(read_text(text), site or ("*",), target)
    if to is not None and to.suffix == ".safetensors":
        output.say(f"Wrote {found.save(to)}.")
        return
    deliver(found.figure(*(site or ())), to, json, run)


@app.command("gradients")
def gradients(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Run folder; without one, untrained layers are measured.")
    ] = None,
    text: Annotated[
        str | None,
        options.option(help="With a run: text that the model reads; '-' reads it from stdin.", default="none"),
    ] = None,
    model: Annotated[
        list[str] | None,
        options.option(
            "--model",
            help="Untrained layer with settings: lstm:forget_bias=3. Also radius=R (spectral radius of the recurrent "
            "weights), scale=S (of the inputs) and open.GATE=B (bias of a gate). Repeatable.",
            default="a selection",
        ),
    ] = None,
    hidden: Annotated[int, typer.Option(min=1, help="Hidden size of untrained layers.")] = 64,
    length: Annotated[int, typer.Option(min=2, help="Sequence length for untrained layers, in steps.")] = 200,
    precision: Precision = "float32",
    seed: Annotated[int, typer.Option(min=0, help="Random seed of untrained layers.")] = 0,
    target: Target = None,
    to: To = None,
    module: options.Module = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Measure gradient norms over distance in time, of a run on a text or of untrained layers."""
    from elman.inspection import gradient_decay
    from elman.inspection.gradients import fading_figure, model_figure

    if run is not None:
        if text is None:
            raise ConfigError("a run needs a text to read: --text '...'")
        found = load_model(run, device)
        reading = found.reading(read_text(text), target, precision)
        deliver(model_figure(reading, f"{found.of}, {precision}"), to, json, run)
        return
    probes = [gradient_decay.Probe.parse(one) for one in model or gradient_decay.USUAL]
    deliver(fading_figure(probes, length, hidden, seed, precision), to, json)


@app.command("predictions")
def predictions(
    run: Run,
    text: Text,
    target: Target = None,
    at: Annotated[
        int, typer.Option(help="Position of the prediction to explain, from 0; negative counts from the end.")
    ] = -1,
    contrast: Annotated[str | None, options.option(help="Two outcomes to compare: was,were.", default="none")] = None,
    edit: Edits = None,
    to: To = None,
    module: options.Module = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Show surprisal along a text, the most probable outcomes, and the saliency of each token for one prediction."""
    from elman.inspection.predictions import prediction_figure

    pair = [part.strip() for part in contrast.split(",")] if contrast else []
    if pair and len(pair) != 2:
        raise ConfigError(f"--contrast {contrast!r}: give two outcomes separated by a comma, such as was,were")
    found = load_model(run, device)
    reading = found.reading(read_text(text), target)
    deliver(prediction_figure(reading, found.of, at, pair, read_edits(edit)), to, json, run)


@app.command("attention")
def attention(
    run: Run,
    text: Text,
    target: Target = None,
    layer: Annotated[
        int | None, options.option(help="Attention layer, counted from 1.", default="the first four")
    ] = None,
    head: Annotated[
        list[int] | None, options.option(help="Attention head, counted from 1. Repeatable.", default="all")
    ] = None,
    mark: Annotated[
        list[str] | None,
        options.option(help="Token whose share of the attention is reported. Repeatable.", default="none"),
    ] = None,
    edit: Edits = None,
    to: To = None,
    module: options.Module = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Show attention weights of any layer and head: maps, entropy, distance; alignments of translations."""
    from elman.inspection.attention import attention_figure

    found = load_model(run, device)
    reading = found.reading(read_text(text), target)
    with editing(edit):
        figure = attention_figure(reading, found.of, layer, head or (), mark or ())
    deliver(figure, to, json, run)


@app.command("padding")
def padding(
    run: Run,
    text: Text,
    target: Target = None,
    pads: Annotated[
        list[int] | None, options.option(help="Number of padding tokens added. Repeatable.", default="1 to 32")
    ] = None,
    precision: Precision = "float32",
    to: To = None,
    module: options.Module = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Test whether padding changes the scores of a text, and how much attention falls on padding."""
    from elman.inspection.padding import PADS, padding_figure

    found = load_model(run, device)
    reading = found.reading(read_text(text), target, precision)
    deliver(padding_figure(reading, f"{found.of}, {precision}", pads or PADS), to, json, run)


@app.command("ribbons")
def ribbons(
    run: Run,
    text: Text,
    unit: Annotated[
        list[int] | None,
        options.option(help="Hidden unit, counted from 0. Repeatable.", default="those that change most"),
    ] = None,
    layer: Annotated[
        int | None, options.option(help="Recurrent layer, counted from 1.", default="the first four")
    ] = None,
    target: Target = None,
    edit: Edits = None,
    to: To = None,
    module: options.Module = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Show timelines of single hidden units along a text: their values, and where their gates open and close."""
    from elman.inspection.ribbons import ribbon_figure

    found = load_model(run, device)
    reading = found.reading(read_text(text), target)
    with editing(edit):
        figure = ribbon_figure(reading, found.of, unit or (), layer)
    deliver(figure, to, json, run)


@app.command("units")
def units(
    run: Run,
    data: Annotated[Path, typer.Option("--data", help="Text file to read.")],
    against: Annotated[
        list[str] | None,
        options.option(help="Property to correlate units with: 'inside quotes'. Repeatable.", default="all"),
    ] = None,
    site: Annotated[
        list[str] | None,
        options.option(
            "--sites", help="Sites whose units are analysed, by name or pattern. Repeatable.", default="states"
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=100, help="Maximum number of characters to read.")] = 20_000,
    to: To = None,
    module: options.Module = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Measure how long each unit remembers, and find units that track quotes, brackets, lines or subjects."""
    from elman.errors import DataError
    from elman.inspection.units import unit_figure

    try:
        text = data.read_text(encoding="utf-8", errors="replace")[:limit]
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=data) from None
    found = load_model(run, device)
    deliver(unit_figure(found.reading(text), found.of, site or (), against or ()), to, json, run)


def load_model(run: Path, device: str | None) -> Any:
    from elman.pipeline import load

    return load(run, device or "auto")


def read_text(text: str) -> str:
    return "\n".join(stdin.read_lines()) if text == "-" else text


@contextmanager
def editing(edits: list[str] | None) -> Iterator[None]:
    """Edits the sites inside the block."""
    from elman.ops import taps

    with taps.edit(read_edits(edits)):
        yield


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

    from elman.figures.render_text import supports_colour

    of = ": ".join(str(part) for part in (run, figure.of) if part)
    figure = replace(figure, of=of).by(options.command())
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
