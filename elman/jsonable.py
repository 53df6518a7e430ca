"""Results as JSON types; numbers that are not finite become null."""

import math
from dataclasses import fields, is_dataclass
from typing import Any


def jsonable(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: jsonable(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "_asdict"):
        return jsonable(value._asdict())
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Result:
    """Base class of dataclasses of scores."""

    def plain(self) -> dict[str, Any]:
        """As JSON types."""
        return jsonable(self)
