"""elman data: look at text before training on it."""

from typing import Annotated, Any

import typer

from elman.cli import options

app = typer.Typer(no_args_is_help=True, help="Look at text before training on it.")


@app.callback()
def data() -> None:
    pass


@app.command("describe")
def describe(
    files: Annotated[list[str], typer.Argument(help="Files, folders, globs, '-' or hub:NAME.")],
    column: Annotated[str, typer.Option(help="Field of records that holds the text.")] = "text",
    format: Annotated[str, typer.Option(help="auto, text, jsonl, csv, tsv, parquet or hub.")] = "auto",
    document: Annotated[str, typer.Option(help="auto, line, block, file or record.")] = "auto",
    json: options.Json = False,
) -> None:
    """Documents, sizes, vocabulary, repairs, and how much of the held-out text is new."""
    from elman.corpus import DataConfig, describe, open_corpus

    settings: dict[str, Any] = {"train": files, "column": column, "format": format, "document": document}
    found = describe(open_corpus(DataConfig.make(settings, where="data"))).plain()
    if json:
        options.show_json(found)
        return
    splits = found["splits"]
    names = [key for key in next(iter(splits.values())) if key not in ("repairs", "sources")]
    rows = [[name.replace("_", " "), *(splits[split].get(name) for split in splits)] for name in names]
    options.table("Data", ["", *splits], rows)
    for split in splits:
        sources = splits[split]["sources"]
        print(f"{split}: from {', '.join(sources[:3])}" + (f" and {len(sources) - 3} more" if len(sources) > 3 else ""))
        for repair in splits[split].get("repairs") or []:
            print(f"{split}: repaired {repair}")
