"""Options that several verbs share, and how they become settings of a recipe."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

Data = Annotated[list[str] | None, typer.Option("--data", help="Training text: file, folder, glob, '-' or hub:NAME. Repeatable.")]
Valid = Annotated[list[str] | None, typer.Option(help="Validation text; without it a part of the training text is held out.")]
Test = Annotated[list[str] | None, typer.Option(help="Test text.")]
Model = Annotated[str | None, typer.Option(help="Kind of model or layer, as `elman list` shows them.")]
Tokenizer = Annotated[str | None, typer.Option(help="byte, character, word or bpe.")]
Size = Annotated[str | None, typer.Option(help="tiny, small, medium or large.")]
Params = Annotated[str | None, typer.Option(help="Number of parameters to come close to, like 250k or 5M.")]
Seed = Annotated[int | None, typer.Option(help="All dice of the run come from this number.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value, and nothing else, on stdout.")]
Recipe = Annotated[Path | None, typer.Argument(help="A recipe in YAML; without one every setting has its default.", show_default=False)]


def build_recipe(
    settings: list[str],
    source: Path | None,
    *,
    data: list[str] | None,
    valid: list[str] | None,
    test: list[str] | None,
    model: str | None,
    tokenizer: str | None,
    size: str | None,
    params: str | None,
    seed: int | None,
    device: str | None,
) -> Any:
    """Named options first, then the size dial, then dotted settings: the more particular wins."""
    from elman.config import parse_overrides
    from elman.pipeline.recipe import read_recipe
    from elman.pipeline.sizes import size_overrides

    named = {"data.train": data, "data.valid": valid, "data.test": test, "model": model, "tokenizer": tokenizer}
    named |= {"parameters": params, "seed": seed, "device": device}
    overrides: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    if data is not None:
        overrides = {"data.language": None, **overrides}
    overrides |= size_overrides(size) if size else {}
    return read_recipe(source, overrides | parse_overrides(settings))


def show_json(value: Any) -> None:
    json.dump(value, sys.stdout, ensure_ascii=False, indent=2)
    sys.stdout.write("\n")


def table(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """A table on stdout for people."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=title, title_justify="left", header_style="bold")
    for index, column in enumerate(columns):
        shown.add_column(column, justify="left" if index == 0 else "right" if _numbers(rows, index) else "left")
    for row in rows:
        shown.add_row(*(number(cell) for cell in row))
    Console().print(shown)


def number(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _numbers(rows: list[list[Any]], index: int) -> bool:
    return all(isinstance(row[index], int | float | None) for row in rows)
