"""The registry of commands: `@verb("train")` turns a function into `elman train`; `main` reads it."""

import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

import typer

Settings = Literal["none", "recipe", "search", "unparsed"]
Function = TypeVar("Function", bound=Callable[..., None])


class Verb(NamedTuple):
    """A command, or a typer.Typer with sub-commands.

    `settings` says which dotted settings it takes: those of a recipe (--training.batch_size 16), those of search only
    (--search.beam_size 4), none, or "unparsed" where such words are arguments of its own (sites of a model).
    """

    run: Any
    settings: Settings
    options: dict[str, Any]


VERBS: dict[str, Verb] = {}


def verb(name: str, *, settings: Settings = "none", **options: Any) -> Callable[[Function], Function]:
    """Registers a command. Its help is the docstring; `options` are those of typer's `command`.

    The context that typer passes holds the dotted settings in `.obj`.
    """

    def register(function: Function) -> Function:
        paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
        options.setdefault("help", "\n\n".join(" ".join(one.split()) for one in paragraphs))
        VERBS[name] = Verb(function, settings, options)
        return function

    return register


def verb_group(name: str, *, help: str, settings: Settings = "none") -> typer.Typer:
    """Registers a command with sub-commands, which are added to the returned app."""
    app = typer.Typer(no_args_is_help=True, help=help)
    app.callback()(lambda: None)  # a group stays one, even with a single sub-command
    VERBS[name] = Verb(app, settings, {})
    return app
