"""From tokens to text that is certain: whole characters only, and nothing that may yet become a stop text."""

from collections.abc import Sequence
from typing import Any, Literal

from elman.generation.sampling import GenerationConfig

Reason = Literal["end", "stop", "length"]


class Detokenizer:
    """The text of one row. `push` and `close` return what became certain; `finished` says why the text is over."""

    finished: Reason | None = None

    def __init__(self, tokenizer: Any, prompt: Sequence[int], config: GenerationConfig):
        from elman.tokenizers import StreamDecoder

        self.config, self.eos_id = config, tokenizer.eos_id
        self.decoder = StreamDecoder(tokenizer)
        self.held = ""  # perhaps the beginning of a stop text
        # The decoder reads the prompt too: whether a space comes first depends on what stands before.
        read = sum(len(self.decoder.push(token)) for token in prompt)
        self.skip = max(len(tokenizer.decode(list(prompt))) - read, 0)  # text of the prompt that it still holds

    def push(self, token: int) -> str:
        assert self.finished is None, f"a token after the {self.finished}"
        if token != self.eos_id:
            return self._release(self.decoder.push(token))
        if self.config.stop_at_end:
            return self.close("end")
        return self._release(self.decoder.flush() + "\n")  # flushed, the decoder begins a new text

    def close(self, reason: Reason = "length") -> str:
        """What was held back, now that nothing can follow."""
        text = self._release(self.decoder.flush())
        if self.finished is None:
            text, self.held, self.finished = text + self.held, "", reason
        return text

    def _release(self, piece: str) -> str:
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
    """Where the stop text begins that is complete first (of several complete at once, the longest)."""
    found = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    return min(found)[1] if found else None


def held_back(text: str, stops: Sequence[str]) -> int:
    """How many characters at the end of the text may be the beginning of a stop text."""
    lengths = (n for stop in stops for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n]))
    return max(lengths, default=0)
