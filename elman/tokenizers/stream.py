"""Incremental decoding: text is emitted once it is complete."""

import codecs

from elman.tokenizers.base import Tokenizer


class StreamDecoder:
    """The concatenated outputs of `push` and `flush` equal `decode` of all ids."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._before, self._first = b"", True
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id: int) -> str:
        """The newly completed text; never an incomplete character."""
        assert id >= 0, "an id is never negative"
        spelling = self._before + self._tokenizer.spellings[id]
        self._before = self._tokenizer.separator
        if spelling and self._first:
            spelling, self._first = spelling.removeprefix(self._tokenizer.leading), False
        return self._bytes.decode(spelling)

    def flush(self) -> str:
        """The rest of the text; the next push starts a new text."""
        rest = self._bytes.decode(b"", final=True)
        self._before, self._first = b"", True
        return rest
