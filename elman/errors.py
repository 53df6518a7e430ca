"""Every exception a user can meet.

ElmanError
├── ConfigError          a recipe, an option or a setting is wrong
│   └── UnknownName      a name that no registry knows
├── DataError            a file, a line or a column cannot be read
├── RunError             a run folder is missing, taken or not what was asked
│   └── CheckpointError  a checkpoint is torn, changed or from another model
├── TrainingError        training cannot go on (non-finite loss, nothing to train on)
├── RecordingError       a site to record or edit does not exist or never fired
└── MissingExtra         an optional package is not installed
"""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from traceback import extract_tb

# What others call our models and layers.
ELSEWHERE = {
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
    """The root: `except ElmanError` catches whatever this package raises for its users."""


class ConfigError(ElmanError):
    pass


class UnknownName(ConfigError):
    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = ""):
        known = sorted(known)
        super().__init__(f"unknown {kind} {name!r}{nearest(name, known)}; known: {', '.join(known)}{hint}")


class DataError(ElmanError):
    """Says where (file, line, column), what was found, and what would work."""

    def __init__(
        self,
        reason: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        column: str | int | None = None,
        remedy: str | None = None,
    ):
        places = {"{}": file, "line {}": line, "column {!r}": column}
        where = ", ".join(text.format(value) for text, value in places.items() if value is not None)
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


def line_of(problem: BaseException) -> str:
    """The last line that ran outside of this package and of all that is installed; nothing if there is none."""
    own = Path(__file__).parent
    for frame in reversed(extract_tb(problem.__traceback__)):
        path = Path(frame.filename)
        if path.is_file() and not path.is_relative_to(own) and "site-packages" not in path.parts:
            return f" (line {frame.lineno} of {path.name})"
    return ""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def nearest(name: str, known: Iterable[str]) -> str:
    """ " (did you mean 'x'?)" when something known is close, else nothing."""
    by_small_letters, asked = {one.lower(): one for one in known}, name.lower()
    also = ELSEWHERE.get(asked, "")
    close = [also] if also in by_small_letters else get_close_matches(asked, by_small_letters, n=1, cutoff=0.5)
    return f" (did you mean {by_small_letters[close[0]]!r}?)" if close else ""
