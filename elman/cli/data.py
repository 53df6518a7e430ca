"""elman data: statistics of text before training on it."""

from typing import Any

import typer

from elman.cli import options, output
from elman.cli.verbs import verb_group

app = verb_group("data", help="Statistics of text before training on it.")


@app.command("describe")
def describe(
    files: list[str] = typer.Argument(
        ..., metavar="FILES", help="Files, folders, glob patterns, '-' (stdin) or hub:NAME (a Hugging Face data set)."
    ),
    column: str = typer.Option("text", help="JSONL, CSV and Parquet: name of the field that holds the text."),
    format: str = typer.Option("auto", help="File format: auto (by file name), text, jsonl, csv, tsv, parquet or hub."),
    document: str = typer.Option(
        "auto", help="What one document is: auto, line, block (up to an empty line), file or record."
    ),
    json: bool = options.JSON,
) -> None:
    """Describe a corpus: documents, sizes, vocabulary, repaired lines, and unknown words in the held-out text."""
    from elman.corpus import DataConfig, describe, open_corpus

    settings: dict[str, Any] = {"train": files, "column": column, "format": format, "document": document}
    found = describe(open_corpus(DataConfig.make(settings, where="data"))).plain()
    if json:
        return output.show_json(found)
    splits = found["splits"]
    names = [key for key in next(iter(splits.values())) if key not in ("repairs", "sources")]
    rows = [[name.replace("_", " "), *(splits[split].get(name) for split in splits)] for name in names]
    output.table("Data", ["", *splits], rows)
    for split in splits:
        sources = splits[split]["sources"]
        print(f"{split}: from {', '.join(sources[:3])}" + (f" and {len(sources) - 3} more" if len(sources) > 3 else ""))
        for repair in splits[split].get("repairs") or []:
            print(f"{split}: repaired {repair}")
