"""Annotations that units are probed for: quotes, brackets, the position in a line, the number of the subject.

An annotator gives every token a number from the text up to it, or NaN where it does not apply.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elman.corpus.synthetic import END, make_language

Annotation = NDArray[np.float64]  # (time,), with NaN
OPENING, CLOSING = "([{<", ")]}>"
QUOTES = '"“”„«»'


def inside_quotes(tokens: Sequence[str]) -> Annotation:
    """1 between quotation marks; the end of a line closes all quotes."""
    open_, found = False, []
    for token in tokens:
        open_ ^= sum(char in QUOTES for char in token) % 2 == 1
        open_ = open_ and "\n" not in token and token != END
        found.append(float(open_))
    return np.array(found)


def bracket_depth(tokens: Sequence[str]) -> Annotation:
    """Number of open brackets."""
    depth, found = 0, []
    for token in tokens:
        for char in token:
            depth = max(0, depth + (char in OPENING) - (char in CLOSING))
        depth = 0 if token == END else depth
        found.append(float(depth))
    return np.array(found)


def position_in_line(tokens: Sequence[str]) -> Annotation:
    """Tokens since the start of the line or text."""
    return _tokens_since(["\n" in token or token == END for token in tokens])


def position_in_word(tokens: Sequence[str]) -> Annotation:
    """Characters since the last space, where spaces are tokens."""
    if not any(token.isspace() for token in tokens):
        return np.full(len(tokens), np.nan)
    return _tokens_since([token.isspace() or token == END for token in tokens])


def _tokens_since(starts: Sequence[bool]) -> Annotation:
    """0 at each start, and from there on one more at each token; the first token follows a start."""
    counts = accumulate(starts, lambda count, start: 0 if start else count + 1, initial=0)
    return np.array([*counts][1:], dtype=np.float64)


def subject_number(tokens: Sequence[str]) -> Annotation:
    """In the synthetic agreement language: 1 for a plural subject, 0 for a singular one, until its verb."""
    language: Any = make_language({"type": "agreement"})
    number: float = np.nan
    found: list[float] = []
    state: Any = language.start
    for token in tokens:
        if token == END:
            state, number = language.start, np.nan
        elif state is not None:
            after = {word: next_state for word, _, next_state in language.transitions(state)}
            role, state = getattr(state, "role", ""), after.get(token)
            if state is None:
                number = np.nan  # not a sentence of this language
            elif role == "subject" and token in language.number:
                number = float(language.number[token])
            elif state.stage in ("predicate", "close", "finish") or state.role == "object":
                number = np.nan
        found.append(number)
    return np.array(found)


ANNOTATORS: dict[str, Callable[[Sequence[str]], Annotation]] = {
    "inside quotes": inside_quotes,
    "bracket depth": bracket_depth,
    "place in line": position_in_line,
    "place in word": position_in_word,
    "subject number": subject_number,
}
