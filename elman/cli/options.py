"""Options that several verbs share, and how they become settings of a recipe."""

import json
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from elman.errors import ConfigError, DataError

STDIN = "standard input"
Form = Literal["text", "jsonl"]


def option(*names: str, help: str, default: str, **more: Any) -> Any:
    """An option that is left out unless given; `default` tells what then holds."""
    return typer.Option(*names, help=help, show_default=default, **more)


WORDS: ContextVar[Sequence[str]] = ContextVar("words", default=())


def command() -> str:
    """The command that runs now, as it can be typed again."""
    return shlex.join(["elman", *WORDS.get()])


def hint(*words: str | Path, modules: Iterable[Path] | None = ()) -> str:
    """A command to type next, with the files of Python that it needs to know every name."""
    own = [str(word) for path in modules or () for word in ("--module", path)]
    return shlex.join(["elman", *map(str, words), *own])


def _read_modules(paths: list[Path] | None) -> list[Path] | None:
    """Before the verb begins, so that every name is known to it."""
    if paths:
        from elman.comparison.user_modules import read_modules

        read_modules(paths)
    return paths


TEXT = "file, folder, glob, '-' or hub:NAME. Repeatable."
Data = Annotated[list[str] | None, option("--data", help=f"Training text: {TEXT}", default="a synthetic language")]
Valid = Annotated[list[str] | None, option(help="Validation text.", default="a tenth of the training text, held out")]
Test = Annotated[list[str] | None, option(help="Test text.", default="none")]
Task = Annotated[
    str | None,
    option(help="What to learn, as `elman list` shows tasks.", default="language modelling, or the recipe's"),
]
Target = Annotated[
    list[str] | None, option("--target", help="To translate: the targets of --data, line by line.", default="a column")
]
ValidTarget = Annotated[list[str] | None, option("--valid-target", help="The targets of --valid.", default="a column")]
TestTarget = Annotated[list[str] | None, option("--test-target", help="The targets of --test.", default="a column")]
COLUMNS = "The two columns that count: label,text; source,target; form,upos of CoNLL-U; or their numbers, as 1,2."
Columns = Annotated[str | None, option(help=COLUMNS, default="by their names")]
Model = Annotated[str | None, option(help="Kind of model or layer, as `elman list` shows them.", default="lstm")]
Tokenizer = Annotated[
    str | None, option(help="byte, character, word or bpe.", default="character; word for a language")
]
Start = Annotated[
    str | None,
    option(
        "--start-from",
        help="Run to begin with: of a language or masked model, to classify or tag; of a translator, to translate.",
        default="random numbers",
    ),
]
Others = Annotated[
    list[Path] | None,
    option(
        "--with",
        help="Another run, of the same tokens, to translate together. Repeatable.",
        default="none",
    ),
]
Size = Annotated[str | None, option(help="tiny, small, medium or large.", default="one layer of 256 units")]
Params = Annotated[str | None, option(help="Number of parameters to come close to, like 250k or 5M.", default="any")]
Seed = Annotated[int | None, option(help="All dice of the run come from this number.", default="1")]
Device = Annotated[str | None, option(help="auto, cpu, cuda or mps.", default="auto")]
Module = Annotated[
    list[Path] | None,
    option(
        "--module",
        help="Python file that registers your own cell or layer. Repeatable.",
        default="none",
        callback=_read_modules,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
Recipe = Annotated[Path | None, typer.Argument(help="A recipe in YAML.", show_default="every setting has its default")]


def build_recipe(
    settings: list[str],
    source: str | Path | None,
    *,
    task: str | None,
    data: list[str] | None,
    valid: list[str] | None,
    test: list[str] | None,
    target: list[str] | None,
    valid_target: list[str] | None,
    test_target: list[str] | None,
    columns: str | None,
    model: str | None,
    tokenizer: str | None,
    start_from: str | None,
    size: str | None,
    params: str | None,
    seed: int | None,
    device: str | None,
) -> Any:
    """Named options first, then the size dial, then dotted settings: the more particular wins."""
    from elman.config import parse_overrides, read_yaml
    from elman.pipeline.recipe import columns_of, read_recipe
    from elman.pipeline.sizes import size_overrides

    named: dict[str, Any] = {"data.train": data, "data.valid": valid, "data.test": test}
    named |= {"data.train_target": target, "data.valid_target": valid_target, "data.test_target": test_target}
    named |= {
        "task": task,
        "start_from": start_from,
        "model": model,
        "tokenizer": tokenizer,
        "parameters": params,
        "seed": seed,
        "device": device,
    }
    overrides: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    if data is not None:
        overrides = {"data.language": None, **overrides}
    stored = read_yaml(source) if source else {}
    task = task or stored.get("task")
    check_targets(task, target, valid_target, test_target)
    overrides |= columns_of(columns, task) if columns else {}
    overrides |= size_overrides(size, model or stored.get("model"), task) if size else {}
    return read_recipe(source, overrides | parse_overrides(settings))


def check_targets(task: str | None, *targets: list[str] | None) -> None:
    """Only some tasks have targets."""
    if any(targets):
        from elman.pipeline.recipe import DEFAULT, check_targets

        check_targets(task or DEFAULT)


def search_settings(words: Iterable[str], beam_size: int | None) -> dict[str, Any]:
    """What `--search.length_penalty 1` and the like say, --beam-size among them."""
    from elman.config import override, parse_overrides

    given = parse_overrides(words)
    wrong = [key for key in given if not key.startswith("search.")]
    if wrong:
        raise ConfigError(f"--{wrong[0]}: a trained model takes settings of search only, as --search.length_penalty 1")
    named = {} if beam_size is None else {"search.beam_size": beam_size}
    return override({"search": {}}, {**named, **given})["search"]


def show_json(value: Any) -> None:
    json.dump(value, sys.stdout, ensure_ascii=False, indent=2)
    sys.stdout.write("\n")


def say(text: str) -> None:
    """A sentence for people, as wide as the terminal."""
    print(textwrap.fill(text, shutil.get_terminal_size().columns))


def read_lines() -> Iterator[str]:
    """Lines of standard input; what is not UTF-8 is replaced and counted, for one bad byte should not end a stream."""
    from elman.corpus import Repairs

    repairs = Repairs()
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        for number, line in enumerate(sys.stdin, start=1):
            text = line.encode(errors="surrogateescape").decode(errors="replace")
            if text != line:
                repairs.add("invalid UTF-8", STDIN, number)
            yield text.rstrip("\r\n")
    finally:
        for repair in repairs.describe():
            print(f"repaired: {repair}", file=sys.stderr)


@contextmanager
def naming_input() -> Iterator[None]:
    """Where a line is wrong, say that it came from standard input."""
    try:
        yield
    except DataError as error:
        if error.file is None and error.line is not None:
            raise DataError(error.reason, file=STDIN, line=error.line, remedy=error.remedy) from None
        raise


def read_objects(form: Form) -> Iterator[Any]:
    """Lines of standard input as --from says what they are."""
    for number, line in enumerate(read_lines(), start=1):
        if form == "text":
            yield line
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            raise DataError(f"not valid JSON: {error}", file=STDIN, line=number) from None
        if not isinstance(found, dict):
            raise DataError("not a JSON object", file=STDIN, line=number, remedy='write {"text": "..."}')
        yield found


def table(title: str, columns: list[str], rows: list[list[Any]], wrap: bool = True, lines: bool = False) -> None:
    """A table on stdout for people; without `wrap` long cells are cut, so that each row is one line."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(header_style="bold", show_lines=lines, show_header=any(columns))
    for index, column in enumerate(columns):
        justify: Any = "right" if index and _numbers(rows, index) else "left"
        shown.add_column(Text(column), justify=justify, no_wrap=not wrap, overflow="fold" if wrap else "ellipsis")
    for row in rows:
        shown.add_row(*(Text(number(cell)) for cell in row))  # text from models and data may look like markup
    console = Console()
    console.print(Text(title, style="bold"))  # not the table's own title, which wraps at the table's width
    console.print(shown)


def number(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int) or (isinstance(value, float) and 1000 <= abs(value) < 1e12):
        return f"{value:,.0f}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def measure(key: str, kind: str) -> str:
    """The name of a score for people; what compares with its like only says so."""
    name = key.replace("_", " ")
    if kind == "pseudo-likelihood":
        name = name.replace("perplexity", "pseudo-perplexity").replace("bits", "pseudo-bits")
    return name


def _numbers(rows: list[list[Any]], index: int) -> bool:
    return all(isinstance(row[index], int | float | None) or "%" in str(row[index]) for row in rows)
