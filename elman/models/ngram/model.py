"""The n-gram language model: its state is the last n-1 tokens, its weights are counted, not trained."""

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.batches import TokenStore
from elman.models.base import MODELS
from elman.models.ngram.config import NGramConfig
from elman.models.ngram.counts import count
from elman.models.ngram.cpp_step import source
from elman.models.ngram.fitting import weigh
from elman.models.ngram.lookup import NOTHING, all_words, among, choose, walk, with_zeros
from elman.models.ngram.tables import Table
from elman.ops.taps import listening, stepping, tap
from elman.registry import Traits
from elman.shapes import Lengths, State, Token, Tokens
from elman.tokenizers import EOS_ID


class Counted(NamedTuple):
    """Progress of a fit: the n-grams of one length are known."""

    length: int
    ngrams: int


@MODELS.register("ngram")
class NGram(nn.Module):
    """Counted n-grams with smoothing: fitted in one pass over the text, without gradients."""

    traits: ClassVar = Traits(
        idea="what followed the last words so far will follow them again; what was never seen backs off to fewer words",
        limitation="words are alike or not at all, and nothing further back than n-1 words is seen",
        training="0; the n-grams of each length are sorted and counted once",
        stepping="0; one binary search for each length up to order, and a sum for each word of the vocabulary",
        state="order − 1; the last words",
    )
    Config = NGramConfig
    fits_by_counting: ClassVar = True
    sites: ClassVar = {
        "order": "length of the longest known n-gram that ends in this token: the one its own probability came from",
        "backoff": "nats added to this token's own log-probability by backing off to that length",
        "context": "how many of the latest tokens, this one included, are a known context for the next; can be lowered",
        "output.logits": "log-probability of each next token",
    }

    discounts: Tensor

    def __init__(self, config: NGramConfig, vocab_size: int):
        super().__init__()
        self.config, self.vocab_size, self.order = config, vocab_size, config.order
        self.orders = nn.ModuleList(Table(vocab_size, words=length == 1) for length in range(1, self.order + 1))
        self.register_buffer("discounts", torch.zeros(self.order, 3))
        self.notes: list[str] = []  # what was odd about the counts

    def fit(self, store: TokenStore, carry: bool = False) -> Iterator[Counted]:
        """Count all documents of a store. N-grams never reach over `<eos>`, whether or not the state is carried."""
        levels = []
        for length, level in enumerate(count(store.tokens, store.starts, self.vocab_size, self.order), 1):
            levels.append(level)
            yield Counted(length, len(level.keys))
        self.notes, fitted = [], []
        for length, order in enumerate(weigh(levels, self.vocab_size, self.config), 1):
            fitted.append(order)
            if order.guessed:
                self.notes.append(f"too few counts of 1 to 3 among {length}-grams: discounts {order.discounts} assumed")
        for length, (table, order) in enumerate(zip(self.tables, fitted, strict=True), 1):
            backoff = fitted[length].context_backoff if length < self.order else ()
            table.fill(order.keys if length > 1 else (), order.log_prob, backoff)
            self.discounts[length - 1] = torch.tensor(order.discounts or (0.0, 0.0, 0.0))

    def initial_state(self, batch: int) -> Tensor:
        return torch.full((batch, self.order - 1), NOTHING, device=self.discounts.device)

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

    def machine_code(self, signature: str) -> str:
        """The step in C++, for `compiler.cpu.step`: a tracer could not follow what is found where."""
        keys, backoffs = ([len(getattr(table, name)) for table in self.tables] for name in ("keys", "backoff"))
        return source(signature, self.vocab_size, keys, backoffs)

    def losses(
        self, inputs: Tokens, targets: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]:
        """Nats of every target; infinite for what maximum likelihood holds impossible."""
        line, first = self._line(inputs, state), self.order - 1
        if listening() or not torch.equal(inputs[:, 1:], targets[:, :-1]):
            contexts = self._contexts(line)
            found = among(self.tables, contexts, targets)
        else:  # as usual, a target is the next input: one walk finds both
            contexts, found = walk(self.tables, torch.cat([line, targets[:, -1:]], 1), self.order)
            contexts, found = [part[:, first:-1] for part in contexts], [part[:, first + 1 :] for part in found]
        chosen = choose(self.tables, contexts, found)
        return -with_zeros(chosen.log_prob + chosen.backoff), self._state(line, lengths)

    @property
    def tables(self) -> list[Table]:
        """One for each length, from 1."""
        return list(self.orders)  # type: ignore[arg-type]

    def explain(self, batch: int = 0, time: int = 0) -> list[str]:
        return [f"{self.order}-gram, {self.config.smoothing}: counted in one pass, found by binary search"]

    def facts(self) -> dict[str, Any]:
        """N-grams of each length, memory, and each length's discounts for counts of 1, 2, and 3 or more."""
        ngrams, size = [len(table.log_prob) for table in self.tables], sum(table.bytes for table in self.tables)
        facts = {"order": self.order, "smoothing": self.config.smoothing, "ngrams": ngrams, "bytes": size}
        return {**facts, "bytes_per_ngram": size / sum(ngrams), "discounts": self.discounts.tolist()}

    def _line(self, tokens: Tokens, state: State | None) -> Tensor:
        """The past and the tokens after it: (batch, n-1 + time)."""
        return torch.cat([self.initial_state(len(tokens)) if state is None else state, tokens], 1)

    def _contexts(self, line: Tensor, step: bool = False) -> list[Tensor]:
        """What is known after each new token, for each length of context; whoever listens may shorten it."""
        first = self.order - 1
        if not listening():
            contexts, _ = walk(self.tables, line, first)
            return [part[:, first:] for part in contexts[: self.order]]
        contexts, found = walk(self.tables, F.pad(line, (1, 0), value=NOTHING), self.order)
        before, found = [part[:, first:-1] for part in contexts], [part[:, first + 1 :] for part in found]
        chosen = choose(self.tables, before, found)
        contexts = [part[:, first + 1 :] for part in contexts[: self.order]]
        longest = torch.stack([length * (part >= 0) for length, part in enumerate(contexts)]).amax(0)
        for name, value in {"order": chosen.order, "backoff": chosen.backoff}.items():
            tap(name, value[:, 0] if step else value)
        longest = tap("context", longest[:, 0]).unsqueeze(1) if step else tap("context", longest)
        return [torch.where(length <= longest, part, NOTHING) for length, part in enumerate(contexts)]

    def _state(self, line: Tensor, lengths: Lengths | None) -> Tensor:
        """The last n-1 tokens of each row's real part; what stands before an `<eos>` among them is forgotten."""
        width = self.order - 1
        if lengths is None:
            last = line[:, line.shape[1] - width :]
        else:
            last = line.gather(1, torch.arange(width, device=line.device) + lengths.to(line.device).unsqueeze(1))
        ends = (last == EOS_ID).long()
        after = ends.flip(1).cumsum(1).flip(1) - ends  # how many ends stand after each
        return torch.where(after > 0, NOTHING, last)
