"""What a unit may have learnt to follow: quotes, brackets, the place in a line, the number of a subject.

An annotator says something about every token of a text, from what was read up to it; nothing where it has no opinion.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elman.corpus.synthetic import LANGUAGES

Annotation = NDArray[np.float64]  # one number for each token; NaN where nothing is said
OPENING, CLOSING = "([{<", ")]}>"
QUOTES = '"“”„«»'


def inside_quotes(tokens: Sequence[str]) -> Annotation:
    """1 after a quotation mark was opened, until it is closed; a line ends all quotes."""
    open_, found = False, []
    for token in tokens:
        for sign in token:
            if sign in QUOTES:
                open_ = not open_
        open_ = open_ and "\n" not in token and token != "<eos>"
        found.append(float(open_))
    return np.array(found)


def bracket_depth(tokens: Sequence[str]) -> Annotation:
    """How many brackets are open."""
    depth, found = 0, []
    for token in tokens:
        signs = [token] if token == "<eos>" else token
        for sign in signs:
            depth = 0 if sign == "<eos>" else max(0, depth + (sign in OPENING) - (sign in CLOSING))
        found.append(float(depth))
    return np.array(found)


def place_in_line(tokens: Sequence[str]) -> Annotation:
    """Tokens since the line (or the text) began."""
    place, found = 0, []
    for token in tokens:
        place = 0 if "\n" in token or token == "<eos>" else place + 1
        found.append(float(place))
    return np.array(found)


def inside_word(tokens: Sequence[str]) -> Annotation:
    """Signs since the last space, where spaces are tokens."""
    if not any(token.isspace() for token in tokens):
        return np.full(len(tokens), np.nan)
    place, found = 0, []
    for token in tokens:
        place = 0 if token.isspace() or token == "<eos>" else place + 1
        found.append(float(place))
    return np.array(found)


def subject_number(tokens: Sequence[str]) -> Annotation:
    """Of the embedded agreement language: 1 for a plural subject, 0 for a singular one, until its verb has come."""
    kind: Any = LANGUAGES["agreement"]
    language = kind(kind.Config())
    number: float = np.nan
    found: list[float] = []
    state: Any = language.start
    for token in tokens:
        if token == "<eos>":
            state, number = language.start, np.nan
        elif state is not None:
            after = {word: next_state for word, _, next_state in language.transitions(state)}
            role, state = getattr(state, "role", ""), after.get(token)
            if state is None:
                number = np.nan  # no sentence of this language
            elif role == "subject" and token in language.number:
                number = float(language.number[token])
            elif state.stage in ("predicate", "close", "finish") or state.role == "object":
                number = np.nan
        found.append(number)
    return np.array(found)


ANNOTATORS: dict[str, Callable[[Sequence[str]], Annotation]] = {
    "inside quotes": inside_quotes,
    "bracket depth": bracket_depth,
    "place in line": place_in_line,
    "place in word": inside_word,
    "subject number": subject_number,
}
