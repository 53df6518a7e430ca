"""elman list: every name that a recipe can use."""

from elman.cli import options


def list_names(json: options.Json = False) -> None:
    """Cells, layers, models, tokenizers, languages, with one line each."""
    from elman.pipeline.names import every_name

    names = every_name()
    if json:
        options.show_json(names)
        return
    for kind, entries in names.items():
        options.table(kind, ["name", "what it is"], [[name, text] for name, text in entries.items()])
