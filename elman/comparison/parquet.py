"""Race results as a parquet table: a column per number or text; anything nested deeper is stored as JSON."""

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from elman.errors import MissingExtra
from elman.runs import atomic_write

PLAIN = (int, float, str, type(None))


def write_parquet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("writing parquet", "pyarrow", "data") from None
    names = dict.fromkeys(name for row in rows for name in row)
    columns = dict(pair for name in names for pair in _columns(name, [row.get(name) for row in rows]))
    memory = io.BytesIO()
    pq.write_table(pa.table(columns), memory)
    atomic_write(path, memory.getvalue())


def _columns(name: str, values: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """The column itself, or `name.part` columns for a flat mapping, or JSON: the same type for all rows."""
    known = [value for value in values if value is not None]
    if all(isinstance(value, int | float) for value in known) or all(isinstance(value, str) for value in known):
        yield name, values
    elif all(isinstance(value, list) and all(isinstance(part, int | float) for part in value) for value in known):
        yield name, [None if value is None else [float(part) for part in value] for value in values]
    elif all(isinstance(value, dict) and all(isinstance(part, PLAIN) for part in value.values()) for value in known):
        for part in dict.fromkeys(part for value in known for part in value):
            yield from _columns(f"{name}.{part}", [value.get(part) if value else None for value in values])
    else:
        yield name, [None if value is None else json.dumps(value, ensure_ascii=False) for value in values]
