"""N-gram language model: its state is the last n - 1 tokens, its weights are counts."""

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.batches import TokenStore
from elman.compiler.errors import CannotCompile
from elman.models.base import MODELS
from elman.models.ngram.cpp_step import source
from elman.models.ngram.estimation import NGramConfig, count, estimate
from elman.models.ngram.tables import NO_TOKEN, Table, all_words, back_off, extend_contexts, find_ngrams, with_zeros
from elman.ops.taps import listening, stepping, tap
from elman.registry import Traits
from elman.shapes import Lengths, State, Token, Tokens
from elman.tokenizers import EOS_ID


class CountProgress(NamedTuple):
    """Progress of a fit: the n-grams of one length are counted."""

    length: int
    ngrams: int


@MODELS.register("ngram")
class NGram(nn.Module):
    """Smoothed n-gram model, fitted in one pass over the text without gradients."""

    traits: ClassVar = Traits(
        idea="predicts what followed the same last words in training; unseen n-grams back off to shorter contexts",
        limitation="no similarity between words, and no context beyond n − 1 words",
        training="0; n-grams of each length are counted once by sorting",
        stepping="0; one binary search per length, and one addition per word of the vocabulary",
        state="order − 1; the last words",
    )
    Config = NGramConfig
    fits_by_counting: ClassVar = True
    sites: ClassVar = {
        "order": "length of the longest known n-gram that ends in this token, which gives its probability",
        "backoff": "sum of back-off weights (nats) of this token down to that length",
        "context": "length of the longest known context for the next token; can be lowered",
        "output.logits": "log-probability of each next token",
    }

    discounts: Tensor

    def __init__(self, config: NGramConfig, vocab_size: int):
        super().__init__()
        self.config, self.vocab_size, self.order = config, vocab_size, config.order
        self.orders = nn.ModuleList(Table(vocab_size, words=length == 1) for length in range(1, self.order + 1))
        self.register_buffer("discounts", torch.zeros(self.order, 3))
        self.notes: list[str] = []  # remarks about the estimation

    def fit(self, store: TokenStore, carry: bool = False) -> Iterator[CountProgress]:
        """Counts all documents of a store. N-grams do not span `<eos>`, whether or not the state is carried."""
        levels = []
        for length, level in enumerate(count(store.tokens, store.starts, self.vocab_size, self.order), 1):
            levels.append(level)
            yield CountProgress(length, len(level.keys))
        self.notes, fitted = [], []
        for length, order in enumerate(estimate(levels, self.vocab_size, self.config), 1):
            fitted.append(order)
            if order.guessed:
                self.notes.append(f"too few counts of 1 to 3 among {length}-grams: discounts {order.discounts} assumed")
        for length, (table, order) in enumerate(zip(self.tables, fitted, strict=True), 1):
            backoff = fitted[length].context_backoff if length < self.order else ()
            table.fill(order.keys if length > 1 else (), order.log_prob, backoff)
            self.discounts[length - 1] = torch.tensor(order.discounts or (0.0, 0.0, 0.0))

    def initial_state(self, batch: int) -> Tensor:
        return torch.full((batch, self.order - 1), NO_TOKEN, device=self.discounts.device)

    def forward(
        self, tokens: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]:
        """Log-probabilities (batch, time, vocabulary) of the token after each position, and the new state."""
        line = self._line(tokens, state)
        logits = all_words(self.tables, self._contexts(line))
        return tap("output.logits", logits), self._state(line, lengths)

    def step(self, token: Token, state: State) -> tuple[Tensor, State]:
        """Log-probabilities (batch, vocabulary) after one more token, and the new state."""
        line = self._line(token.unsqueeze(1), state)
        with stepping():
            logits = all_words(self.tables, self._contexts(line, step=True))
            return tap("output.logits", logits[:, 0]), self._state(line, None)

    def check(self) -> None:
        """ValueError if the arrays, which may come from a file, are not valid tables."""
        contexts = 1
        for length, table in enumerate(self.tables, 1):
            if flaw := table.flaw(contexts):
                raise ValueError(f"the table of {length}-grams is invalid: {flaw}")
            contexts = len(table.log_prob)

    def load_state_dict(self, *args: Any, **options: Any) -> Any:
        found = super().load_state_dict(*args, **options)
        self.check()
        return found

    def machine_code(self, signature: str) -> str:
        """The step in C++ for `compiler.cpu.step`, because a tracer cannot follow a binary search."""
        self.check()
        if self.discounts.dtype != torch.float32:
            raise CannotCompile("n-grams are compiled in float32 only")
        keys, backoffs = ([len(getattr(table, name)) for table in self.tables] for name in ("keys", "backoff"))
        return source(signature, self.vocab_size, keys, backoffs)

    def losses(
        self, inputs: Tokens, targets: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]:
        """Nats of every target; infinite for unseen n-grams under maximum likelihood."""
        line, first = self._line(inputs, state), self.order - 1
        if listening() or not torch.equal(inputs[:, 1:], targets[:, :-1]):
            contexts = self._contexts(line)
            found = extend_contexts(self.tables, contexts, targets)
        else:  # the usual case, targets are shifted inputs: one lookup finds both
            contexts, found = find_ngrams(self.tables, torch.cat([line, targets[:, -1:]], 1), self.order)
            contexts, found = [part[:, first:-1] for part in contexts], [part[:, first + 1 :] for part in found]
        chosen = back_off(self.tables, contexts, found)
        return -with_zeros(chosen.log_prob + chosen.backoff), self._state(line, lengths)

    @property
    def tables(self) -> list[Table]:
        """One table per length, from 1."""
        return list(self.orders)  # type: ignore[arg-type]

    def explain(self, batch: int = 0, time: int = 0) -> list[str]:
        return [f"{self.order}-gram, {self.config.smoothing}: fitted in one pass, looked up by binary search"]

    def facts(self) -> dict[str, Any]:
        """N-grams of each length, memory, and each length's discounts for counts of 1, 2, and 3 or more."""
        ngrams, size = [len(table.log_prob) for table in self.tables], sum(table.bytes for table in self.tables)
        facts = {"order": self.order, "smoothing": self.config.smoothing, "ngrams": ngrams, "bytes": size}
        return {**facts, "bytes_per_ngram": size / sum(ngrams), "discounts": self.discounts.tolist()}

    def _line(self, tokens: Tokens, state: State | None) -> Tensor:
        """The past and the tokens after it: (batch, n-1 + time)."""
        return torch.cat([self.initial_state(len(tokens)) if state is None else state, tokens], 1)

    def _contexts(self, line: Tensor, step: bool = False) -> list[Tensor]:
        """Known contexts after each new token, by length; a tap can shorten them."""
        first = self.order - 1
        if not listening():
            contexts, _ = find_ngrams(self.tables, line, first)
            return [part[:, first:] for part in contexts[: self.order]]
        contexts, found = find_ngrams(self.tables, F.pad(line, (1, 0), value=NO_TOKEN), self.order)
        before, found = [part[:, first:-1] for part in contexts], [part[:, first + 1 :] for part in found]
        chosen = back_off(self.tables, before, found)
        contexts = [part[:, first + 1 :] for part in contexts[: self.order]]
        longest = torch.stack([length * (part >= 0) for length, part in enumerate(contexts)]).amax(0)
        for name, value in {"order": chosen.order, "backoff": chosen.backoff}.items():
            tap(name, value[:, 0] if step else value)
        longest = tap("context", longest[:, 0]).unsqueeze(1) if step else tap("context", longest)
        return [torch.where(length <= longest, part, NO_TOKEN) for length, part in enumerate(contexts)]

    def _state(self, line: Tensor, lengths: Lengths | None) -> Tensor:
        """The last n - 1 tokens of each row's real part; tokens before an `<eos>` are dropped."""
        width = self.order - 1
        if lengths is None:
            last = line[:, line.shape[1] - width :]
        else:
            last = line.gather(1, torch.arange(width, device=line.device) + lengths.to(line.device).unsqueeze(1))
        ends = (last == EOS_ID).long()
        after = ends.flip(1).cumsum(1).flip(1) - ends  # number of `<eos>` after each
        return torch.where(after > 0, NO_TOKEN, last)
