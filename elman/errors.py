"""All exceptions for users.

ElmanError
├── ConfigError          an invalid recipe, option or setting
│   └── UnknownName      a name that is in no registry
├── DataError            unreadable or invalid data
├── RunError             a run folder is missing, in use or invalid
│   └── CheckpointError  a checkpoint is incomplete, modified or of another model
├── TrainingError        training cannot continue (non-finite loss, no training data)
├── RecordingError       a site to record or edit does not exist or was never reached
└── MissingExtra         an optional package is not installed
"""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from reprlib import Repr
from traceback import extract_tb
from typing import Any

_BRIEF = Repr()
_BRIEF.maxlevel, _BRIEF.maxdict, _BRIEF.maxlist = 4, 6, 12
_BRIEF.maxstring, _BRIEF.maxlong, _BRIEF.maxother = 100, 40, 100

# Other names of our models and layers.
SYNONYMS = {
    "bert": "masked",
    "bilstm": "bidirectional",
    "bigram": "ngram",
    "cnn": "convolution",
    "elman": "rnn",
    "gpt": "transformer",
    "mlp": "feedforward",
    "moe": "experts",
    "seq2seq": "encoder-decoder",
    "simple": "rnn",
    "tcn": "convolution",
    "trigram": "ngram",
    "vanilla": "rnn",
}


class ElmanError(Exception):
    """Base class: `except ElmanError` catches all errors that this package raises for users."""


class ConfigError(ElmanError):
    pass


class UnknownName(ConfigError):
    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = ""):
        known = sorted(known)
        super().__init__(f"unknown {kind} {name!r}{nearest(name, known)}; known: {', '.join(known)}{hint}")


class DataError(ElmanError):
    """An error in a file, with its location (file, line, column), the reason and a remedy."""

    def __init__(
        self,
        reason: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        column: str | int | None = None,
        remedy: str | None = None,
    ):
        location = {"{}": file, "line {}": line, "column {!r}": column}
        where = ", ".join(text.format(value) for text, value in location.items() if value is not None)
        super().__init__(f"{where}: {reason}" if where else reason)
        self.file, self.line, self.column, self.reason, self.remedy = file, line, column, reason, remedy

    def __str__(self) -> str:
        return f"{self.args[0]} ({self.remedy})" if self.remedy else str(self.args[0])


class RunError(ElmanError):
    pass


class CheckpointError(RunError):
    pass


class TrainingError(ElmanError):
    pass


class RecordingError(ElmanError):
    pass


class MissingExtra(ElmanError):
    def __init__(self, what: str, package: str, extra: str):
        super().__init__(f"{what} needs the package {package!r}: pip install 'elman[{extra}]'")


def nan_error() -> ElmanError:
    """The error for a model whose outputs are NaN, from which no answer or score may be made."""
    return ElmanError(
        "the model's outputs are NaN: training diverged or the weights are damaged; try an earlier checkpoint"
    )


def line_of(problem: BaseException) -> str:
    """The innermost traceback line in user code, outside of this package and of installed packages; empty if there is
    none."""
    own = Path(__file__).parent
    for frame in reversed(extract_tb(problem.__traceback__)):
        path = Path(frame.filename)
        if path.is_file() and not path.is_relative_to(own) and "site-packages" not in path.parts:
            return f" (line {frame.lineno} of {path.name})"
    return ""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def brief(value: Any) -> str:
    """A value as an error message quotes it, shortened if it is long or deeply nested."""
    return _BRIEF.repr(value)


def nearest(name: str, known: Iterable[str]) -> str:
    """ " (did you mean 'x'?)" if a known name is similar, else an empty string."""
    by_lower_case, query = {one.lower(): one for one in known}, name.lower()
    synonym = SYNONYMS.get(query, "")
    close = [synonym] if synonym in by_lower_case else get_close_matches(query, by_lower_case, n=1, cutoff=0.5)
    return f" (did you mean {by_lower_case[close[0]]!r}?)" if close else ""
