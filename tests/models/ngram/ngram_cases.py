"""Small texts, and a reference implementation: each smoothing straight from its formula, one probability at a time."""

from collections import Counter
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from elman.batches import TokenStore
from elman.models.ngram import NGram, NGramConfig

Documents = list[list[int]]
VOCABULARY, EOS, BEGIN = 6, 0, -7
SMOOTHINGS = ["maximum-likelihood", "add-k", "witten-bell", "absolute", "kneser-ney", "modified-kneser-ney"]

documents = st.lists(st.lists(st.integers(1, VOCABULARY - 2), max_size=12), min_size=1, max_size=12)  # the last: unseen
texts = st.lists(st.integers(1, VOCABULARY - 1), max_size=8)


@st.composite
def settings(draw: Any) -> dict[str, Any]:
    smoothing = draw(st.sampled_from(SMOOTHINGS))
    found = {"order": draw(st.integers(1, 4)), "smoothing": smoothing, "add_k": draw(st.sampled_from([0.1, 1.0]))}
    if smoothing in ("absolute", "kneser-ney"):
        found["discount"] = draw(st.sampled_from([None, 0.6, 1.0]))
    return {**found, "prune": draw(st.sampled_from([[1], [1, 2], [1, 1, 2], [1, 1, 2, 3]]))}


def stored(docs: Documents) -> TokenStore:
    """As a token store has them, but in memory."""
    ids = [[*doc, EOS] for doc in docs]
    store = object.__new__(TokenStore)
    store.tokens = np.array([id for doc in ids for id in doc], dtype=np.uint16)
    store.starts = np.cumsum([0, *map(len, ids)])
    return store


def fitted(docs: Documents, vocab_size: int = VOCABULARY, **settings: Any) -> NGram:
    model = NGram(NGramConfig.make(settings), vocab_size)
    list(model.fit(stored(docs)))
    return model.eval()


def regular(size: int = 400, seed: int = 0, vocab_size: int = VOCABULARY) -> Documents:
    """Text with a pattern and noise: n-grams of all counts."""
    random = np.random.default_rng(seed)
    weights = random.dirichlet(np.full(vocab_size - 1, 0.4), size=vocab_size)
    docs: Documents = [[]]
    token = 0
    for _ in range(size):
        token = int(random.choice(vocab_size - 1, p=weights[token]))
        if token == 0:
            docs.append([])
        else:
            docs[-1].append(token)
    return docs


class Slow:
    """Interpolated n-grams by definition; shares no code with the implementation under test."""

    def __init__(self, docs: Documents, config: NGramConfig, vocab_size: int = VOCABULARY):
        self.config, self.vocab_size = config, vocab_size
        self.seen: Counter[tuple[int, ...]] = Counter()
        for doc in docs:
            line = [BEGIN, *doc, EOS]
            for length in range(1, config.order + 1):
                self.seen.update(tuple(line[i : i + length]) for i in range(len(line) - length + 1))
        del self.seen[(BEGIN,)]
        self.counts = {gram: self._count(gram) for gram in self.seen}

    def _count(self, gram: tuple[int, ...]) -> int:
        if "kneser-ney" not in self.config.smoothing or len(gram) == self.config.order or gram[0] == BEGIN:
            return self.seen[gram]
        return sum(other[1:] == gram for other in self.seen if len(other) == len(gram) + 1)

    def discount(self, count: int, length: int) -> float:
        if count == 0:
            return 0.0
        if self.config.discount is not None:
            return self.config.discount
        same = [value for gram, value in self.counts.items() if len(gram) == length]
        n1, n2, n3, n4 = (same.count(number) for number in (1, 2, 3, 4))
        if self.config.smoothing != "modified-kneser-ney":
            return n1 / (n1 + 2 * n2) if n1 and n2 else 0.75
        if n1 and n2 and n3:
            y = n1 / (n1 + 2 * n2)
            found = [1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
            if all(0 < value <= number for number, value in enumerate(found, 1)):
                return found[min(count, 3) - 1]
        return [0.5, 1.0, 1.5][min(count, 3) - 1]

    def probability(self, past: tuple[int, ...], word: int) -> float:
        """`past` is the whole text before, beginning with BEGIN."""
        return self._given(past[max(0, len(past) - self.config.order + 1) :], word)

    def _given(self, past: tuple[int, ...], word: int) -> float:
        kind, length = self.config.smoothing, len(past) + 1
        after = {gram: c for gram, c in self.counts.items() if len(gram) == length and gram[:-1] == past}
        kept = {g: c if self.seen[g] >= self.config.prune[min(length, len(self.config.prune)) - 1] else 0
                for g, c in after.items()} if length > 1 else after  # fmt: skip
        total, own = sum(after.values()), kept.get((*past, word), 0)
        pruned = total - sum(kept.values())
        if kind == "add-k":
            k, size = self.config.add_k, self.vocab_size
            return (own + k + pruned / size) / (total + k * size)
        below = self._given(past[1:], word) if past else 1 / self.vocab_size
        if not after:
            return below
        if kind == "maximum-likelihood":
            return (own + pruned * below) / total
        if kind == "witten-bell":
            types = sum(count > 0 for count in kept.values())
            return (own + (types + pruned) * below) / (total + types)
        freed = sum(self.discount(count, length) for count in kept.values()) + pruned
        return (own - self.discount(own, length) + freed * below) / total


def distributions(model: NGram, text: list[int]) -> torch.Tensor:
    """After the beginning, and after each token: (time, vocabulary)."""
    return model(torch.tensor([[EOS, *text]]))[0][0].double().exp()
