"""elman data: statistics of text before training on it."""

from typing import Any

import typer

from elman.cli import options, output
from elman.cli.options import option
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
    task: str | None = option(help="Task whose examples the files hold: classify, tag, translate.", default="none"),
    columns: str | None = option(help=f"With --task: {options.COLUMNS}", default="the usual ones"),
    json: bool = options.JSON,
) -> None:
    """Describe a corpus: documents, sizes, vocabulary, repaired lines, and unknown words in the held-out text.

    With --task also how often each label or tag occurs, and the lengths of targets.
    """
    from elman.corpus import DataConfig, describe, open_corpus

    settings: dict[str, Any] = {"train": files, "column": column, "format": format, "document": document}
    corpus = _examples(files, task, columns) if task else open_corpus(DataConfig.make(settings, where="data"))
    found = describe(corpus).plain()
    if json:
        return output.show_json(found)
    splits = found["splits"]
    names = [key for key in next(iter(splits.values())) if key not in ("repairs", "sources", "classes")]
    rows = [[name.replace("_", " "), *(splits[split].get(name) for split in splits)] for name in names]
    rows = [row for row in rows if any(value is not None for value in row[1:])]
    output.table("Data", ["", *splits], rows)
    output.class_table({split: facts["classes"] for split, facts in splits.items() if facts["classes"]})
    for split in splits:
        sources = splits[split]["sources"]
        print(f"{split}: from {', '.join(sources[:3])}" + (f" and {len(sources) - 3} more" if len(sources) > 3 else ""))
        for repair in splits[split].get("repairs") or []:
            print(f"{split}: repaired {repair}")


def _examples(files: list[str], task: str, columns: str | None) -> Any:
    """The corpus of a task."""
    from elman.pipeline.recipe import columns_of, read_recipe

    named = columns_of(columns, task) if columns else {}
    recipe = read_recipe({"task": task, "data": {"train": files}}, named)
    return recipe.task_class.corpus(recipe)
