"""Incremental detokenization: yields only complete characters, and no text that may be the start of a stop string."""

from collections.abc import Sequence
from typing import Any, Literal

from elman.generation.sampling import GenerationConfig

Reason = Literal["end", "stop", "length"]


class Detokenizer:
    """The text of one row. `push` and `close` return newly final text; `finished` is the reason why it ended."""

    finished: Reason | None = None

    def __init__(self, tokenizer: Any, prompt: Sequence[int], config: GenerationConfig):
        from elman.tokenizers import StreamDecoder

        self.config, self.eos_id, self.check_length = config, tokenizer.eos_id, tokenizer.check_length
        self.length = 1 + len(prompt)  # with the start of the text
        self.decoder = StreamDecoder(tokenizer)
        self.held = ""  # possibly the start of a stop string
        # Feed the prompt to the decoder: a leading space depends on the token before.
        read = sum(len(self.decoder.push(token)) for token in prompt)
        self.skip = max(len(tokenizer.decode(list(prompt))) - read, 0)  # characters of the prompt still buffered

    def push(self, token: int) -> str:
        assert self.finished is None, f"a token after the {self.finished}"
        self.length += 1
        self.check_length(self.length)
        if token != self.eos_id:
            return self._release(self.decoder.push(token))
        if self.config.stop_at_end:
            return self.close("end")
        return self._release(self.decoder.flush() + "\n")  # a flushed decoder starts a new text

    def push_all(self, tokens: Sequence[int]) -> list[str]:
        """The new text with each token, up to where the text ends."""
        if self.config.stop or self.skip or self.eos_id in tokens:
            texts = []
            for token in tokens:
                texts.append(self.push(token))
                if self.finished:
                    break
            return texts
        self.length += len(tokens)
        self.check_length(self.length)
        return [*map(self.decoder.push, tokens)]

    def close(self, reason: Reason = "length") -> str:
        """The rest of the text, once no token can follow."""
        text = self._release(self.decoder.flush())
        if self.finished is None:
            text, self.held, self.finished = text + self.held, "", reason
        return text

    def _release(self, piece: str) -> str:
        if not self.skip and not self.config.stop:  # the usual case, at each token of thousands of texts
            return piece
        piece, self.skip = piece[self.skip :], max(self.skip - len(piece), 0)
        text = self.held + piece
        cut = find_stop(text, self.config.stop)
        if cut is not None:
            self.held, self.finished = "", "stop"
            return text[:cut]
        certain = len(text) - held_back(text, self.config.stop)
        self.held = text[certain:]
        return text[:certain]


def find_stop(text: str, stops: Sequence[str]) -> int | None:
    """Start of the stop string that is completed first; of several completed at once, the longest."""
    found = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    return min(found)[1] if found else None


def held_back(text: str, stops: Sequence[str]) -> int:
    """Length of the longest suffix of the text that is a proper prefix of a stop string."""
    lengths = (n for stop in stops for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n]))
    return max(lengths, default=0)
