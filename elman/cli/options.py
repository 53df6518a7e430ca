"""Options that several verbs share, and how verbs declare theirs: as defaults of their parameters."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, Literal

import typer

InputFormat = Literal["text", "jsonl"]
WORDS: ContextVar[Sequence[str]] = ContextVar("words", default=())


def option(*names: str, help: str, default: str, **more: Any) -> Any:
    """An option that is None unless given; `default` says in words what applies then."""
    return typer.Option(None, *names, help=help, show_default=default, **more)


def command() -> str:
    """The command line of this process, quoted so that it can be typed again."""
    return shlex.join(["elman", *WORDS.get()])


def hint(*words: str | Path, modules: Iterable[Path] | None = ()) -> str:
    """A command to suggest to the user, with the --module files that it needs."""
    own = [str(word) for path in modules or () for word in ("--module", path)]
    return shlex.join(["elman", *map(str, words), *own])


def _import_modules(paths: list[Path] | None) -> list[Path] | None:
    """Runs before the verb, so that the names that the files register are known to it."""
    if paths:
        from elman.comparison.user_modules import read_modules

        read_modules(paths)
    return paths


SOURCES = "file, folder, glob pattern, '-' (stdin) or hub:NAME (a Hugging Face data set). Repeatable."
COLUMNS = "The two columns to use, by name or number: label,text; source,target; form,upos (CoNLL-U); 1,2."

RUN = typer.Argument(
    ..., metavar="RUN", help="Run folder of a trained model, as `elman train` writes it, or a checkpoint in it."
)
TARGET = option(
    "--target", help="Translation: file of the targets of --data, line by line.", default="a column of --data"
)
OTHERS = option(
    "--with",
    help="Translation: another run with the same tokenizers, for an ensemble of both. Repeatable.",
    default="no ensemble",
)
BEAM_SIZE = option(help="Translation: hypotheses kept at each step of the beam search.", default="the recipe's")
DEVICE = option(help="auto, cpu, cuda or mps.", default="auto: a GPU if there is one")
MODULE = option(
    "--module",
    help="Python file that registers your own cells, layers or tasks. Repeatable.",
    default="none",
    callback=_import_modules,
)
JSON = typer.Option(False, "--json", help="Print JSON on stdout, and nothing else there.")


def set_parameters(function: Callable[..., None], parameters: Sequence[Parameter]) -> None:
    """Gives a function with `**values` the signature that typer reads its options from."""
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]


def keyword(name: str, kind: Any, option: Any) -> Parameter:
    """The parameter of one option or argument of typer."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=option, annotation=kind)


def search_settings(words: Iterable[str], beam_size: int | None) -> dict[str, Any]:
    """The recipe's `search` section from dotted settings (`--search.length_penalty 1`) and --beam-size."""
    from elman.config import override, parse_overrides
    from elman.errors import ConfigError

    settings = parse_overrides(words)
    wrong = [key for key in settings if not key.startswith("search.")]
    if wrong:
        raise ConfigError(
            f"--{wrong[0]}: a trained model takes search settings only, such as --search.length_penalty 1"
        )
    named = {} if beam_size is None else {"search.beam_size": beam_size}
    return override({"search": {}}, {**named, **settings})["search"]
