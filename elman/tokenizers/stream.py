"""Decoding one id at a time: text appears as soon as it is certain."""

import codecs

from elman.tokenizers.base import Tokenizer


class StreamDecoder:
    """What `push` and at last `flush` return, put together, is what `decode` gives for all ids."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._before, self._first = b"", True
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id: int) -> str:
        """The text that became certain: never half a character."""
        assert id >= 0, "an id is never negative"
        spelling = self._before + self._tokenizer.spellings[id]
        self._before = self._tokenizer.separator
        if spelling and self._first:
            spelling, self._first = spelling.removeprefix(self._tokenizer.leading), False
        return self._bytes.decode(spelling)

    def flush(self) -> str:
        """What was held back, as far as it can be read; the next push begins a new text."""
        rest = self._bytes.decode(b"", final=True)
        self._before, self._first = b"", True
        return rest
