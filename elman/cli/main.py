"""The command line: one module per verb; recipe settings are dotted options; results on stdout, the rest on stderr."""

import atexit
import gc
import itertools
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import typer

import elman
from elman.cli import options
from elman.cli.failures import end_with
from elman.cli.verbs import VERBS
from elman.errors import ConfigError

# The modules of the verbs, in the order of `elman --help`. A new verb is a module with `@verb(...)`, and its name here.
MODULES: tuple[str, ...] = ("init", "check", "train", "compare", "sweep", "evaluate", "generate", "predict", "score")
MODULES += ("distill", "accept", "import_model", "export", "list_names", "tasks", "bench", "data", "inspect", "lab")
MODULES += ("serve",)

RARELY = 200_000  # new objects between two searches for garbage cycles, which go through all objects of large libraries

DOTTED = re.compile(r"(--)?[A-Za-z_]+(\.[\w-]+)+(=.*)?", re.DOTALL)


def show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"elman {elman.__version__}")
        raise typer.Exit


def global_options(
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", callback=show_version, is_eager=True
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error; anywhere on the command line."),
) -> None:
    """Sequence models from n-grams to attention: train, compare, evaluate and use them on your own text."""


def build_app(modules: Iterable[str] = MODULES) -> typer.Typer:
    """Imports the modules and makes a command of every registered verb."""
    for module in modules:
        import_module(f"elman.cli.{module}")
    return app_of(VERBS)


def app_of(names: Iterable[str]) -> typer.Typer:
    """The commands of some verbs."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(global_options)
    for name in names:
        verb = VERBS[name]
        if isinstance(verb.run, typer.Typer):
            app.add_typer(verb.run, name=name)
        else:
            app.command(name, **verb.options)(verb.run)
    return app


app = build_app()


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits: 0 success, 1 failure, 2 usage error."""
    if arguments is None:
        gc.set_threshold(RARELY)
    atexit.register(gc.freeze)  # the search at the end would find what ends anyway
    words = list(sys.argv[1:] if arguments is None else arguments)
    end = words.index("--") if "--" in words else len(words)
    debug = "--debug" in words[:end]
    words = [word for word in words[:end] if word != "--debug"] + words[end:]
    try:
        _run(words)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as problem:  # tokenizers' PanicException is no Exception
        end_with(problem, debug)


def _run(words: list[str]) -> None:
    verb = VERBS.get(words[0]) if words else None
    words, settings = (words, []) if verb and verb.settings == "unparsed" else split_settings(words)
    options.WORDS.set([*words, *settings])
    if settings and (verb is None or verb.settings == "none"):
        taking = {kind: [name for name, one in VERBS.items() if one.settings == kind] for kind in ("recipe", "search")}
        recipe, search = map(", ".join, taking.values())
        raise ConfigError(f"settings like {settings[0]} go with {recipe}; search settings also with {search}")
    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        try:
            # one verb where it is known: to declare the options of all takes typer longer than many commands
            (app_of(words[:1]) if verb else app)(words, obj=settings, prog_name="elman")
        finally:
            sys.stdout.flush()  # a full disk is noticed here, not at exit


def split_settings(words: list[str]) -> tuple[list[str], list[str]]:
    """Separates dotted settings (`--training.max_epochs 3`, `training.max_epochs=3`) from all other words."""
    others: list[str] = []
    settings: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if word == "--set":  # whose value is a setting too
            others += [word, *itertools.islice(remaining, 1)]
            continue
        dotted = DOTTED.fullmatch(word)
        if dotted is None or not (dotted[1] or dotted[3]):
            others.append(word)
        else:
            settings.append(word)
            if not dotted[3]:
                settings.append(next(remaining, ""))
    return others, settings


def show_warning(message: Warning | str, *details: Any, **more: Any) -> None:
    """A warning as one line for users, without its place in the code."""
    print(f"elman: {message}", file=sys.stderr)
