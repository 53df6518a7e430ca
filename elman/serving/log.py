"""The log: JSON lines on stderr, without texts of users, and without control characters."""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

NAMES = ("elman.serving", "uvicorn", "py.warnings")
LONGEST = 2000  # characters of a message


class JsonLines(logging.Formatter):
    """One object per line; what may quote a text, such as the message of an exception, only where asked for."""

    def __init__(self, quotes: bool):
        super().__init__()
        self.quotes = quotes

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry: dict[str, Any] = {"time": time, "level": record.levelname.lower()}
        entry |= {"event": record.getMessage()[:LONGEST], **getattr(record, "data", {})}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            entry |= {"error": type(error).__name__, "traceback": traceback.format_tb(error.__traceback__)}
            entry |= {"message": str(error)[:LONGEST]} if self.quotes else {}
        return json.dumps(entry, default=str)  # ASCII only: escapes every control character


def log_to_stderr(level: str) -> None:
    """Sets up all loggers of the server."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(quotes=level == "debug"))
    logging.captureWarnings(True)
    for name in NAMES:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # strangers could fill the log with its warnings
