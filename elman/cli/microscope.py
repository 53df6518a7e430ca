"""elman inspect, of a run: what passes inside while it reads a text."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from elman.cli import options
from elman.errors import ConfigError

Run = Annotated[Path, typer.Argument(help="A run folder.")]
Text = Annotated[str, typer.Option("--text", help="What it reads; '-' takes standard input.")]
Target = Annotated[str | None, options.option(help="Of a translation: what is written.", default="its own answer")]
To = Annotated[
    Path | None, options.option("--to", help="File: .html, .svg, .png, .csv, .json or .txt.", default="the terminal")
]
Precision = Annotated[str, typer.Option(help="float32 or float64.")]
Edits = Annotated[
    list[str] | None,
    options.option("--edit", help="Change what passes: SITE=NUMBER, SITE@3=NUMBER. Repeatable.", default="nothing"),
]


def sites(run: Run, module: options.Module = None, device: options.Device = None, json: options.Json = False) -> None:
    """Every place inside a model that can be recorded or edited, with its shape and meaning."""
    from elman.inspection.trace import site_descriptions
    from elman.pipeline import load

    model = load(run, device or "auto")
    found = model.sites()
    told = site_descriptions(model.model, list(found))
    if json:
        options.show_json([{"site": site, "shape": shape, "meaning": told[site]} for site, shape in found.items()])
        return
    for site, shape in found.items():
        print(f"{site}  {' × '.join(map(str, shape)) or '1'}")
        if told[site]:
            print(f"    {told[site]}")


def trace(
    run: Run,
    text: Text,
    site: Annotated[
        list[str] | None,
        options.option("--sites", help="Names or patterns, like '*.gate.*'. Repeatable.", default="gates and states"),
    ] = None,
    target: Target = None,
    edit: Edits = None,
    to: To = None,
    module: options.Module = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Gates and states while a text is read, token by token, as heat maps."""
    model = opened(run, device)
    with editing(edit):
        found = model.trace(given(text), site or ("*",), target)
    if to is not None and to.suffix == ".safetensors":
        options.say(f"Wrote {found.save(to)}.")
        return
    deliver(found.figure(*(site or ())), to, json, run)


def gradients(
    run: Annotated[
        Path | None, typer.Argument(help="A run folder; without one, untrained layers are measured.")
    ] = None,
    text: Annotated[
        str | None, options.option(help="Of a run: what it reads; '-' takes standard input.", default="")
    ] = None,
    model: Annotated[
        list[str] | None,
        options.option(
            "--model",
            help="Untrained layer with settings: lstm:forget_bias=3; also radius=R and scale=S (of inputs), "
            "open.GATE=B. Repeatable.",
            default="the usual ones",
        ),
    ] = None,
    hidden: Annotated[int, typer.Option(min=1, help="Width of untrained layers.")] = 64,
    length: Annotated[int, typer.Option(min=2, help="Steps that untrained layers read.")] = 200,
    precision: Precision = "float32",
    seed: Annotated[int, typer.Option(min=0, help="All dice come from this number.")] = 0,
    target: Target = None,
    to: To = None,
    module: options.Module = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """How far back gradients reach: of a run on a text, or of untrained layers without any data."""
    from elman.inspection import gradient_decay
    from elman.inspection.gradients import gradient_decay_figure, gradient_figure

    if run is not None:
        if text is None:
            raise ConfigError("of a run, give the text that it shall read: --text '...'")
        found = opened(run, device)
        inspected = found.reading(given(text), target, precision)
        deliver(gradient_figure(inspected, f"{found.of}, {precision}"), to, json, run)
        return
    probes = [gradient_decay.UntrainedLayer.parse(one) for one in model or gradient_decay.DEFAULT_LAYERS]
    deliver(gradient_decay_figure(probes, length, hidden, seed, precision), to, json)


def opened(run: Path, device: str | None) -> Any:
    from elman.pipeline import load

    return load(run, device or "auto")


def given(text: str) -> str:
    return "\n".join(options.read_lines()) if text == "-" else text


@contextmanager
def editing(edits: list[str] | None) -> Iterator[None]:
    """What passes is changed inside."""
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
            raise ConfigError(f"--edit {text!r}: an edit is SITE=NUMBER, as layers.0.lstm.gate.forget@3=1")
    return changes


def deliver(figure: Any, to: Path | None, json: bool, run: Path | None = None) -> None:
    """A picture to its file, as JSON, or to the terminal."""
    from dataclasses import replace

    from elman.figures.terminal import supports_colour

    of = ": ".join(str(part) for part in (run, figure.subtitle) if part)
    figure = replace(figure, subtitle=of).with_command(options.command())
    if json:
        options.show_json(figure.plain())
    if to is not None:
        path = figure.save(to)
        if not json:
            for note in figure.notes:
                options.say(note)
            options.say(f"Wrote {path}.")
    elif not json:
        print(figure.text(shutil.get_terminal_size().columns, supports_colour(sys.stdout)), end="")
