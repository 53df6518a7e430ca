"""Word vectors from counts: left singular vectors of the positive pointwise mutual information of words.

Levy and Goldberg (2014) showed that word2vec factorizes such a matrix implicitly. With a few million words counting
needs no learning rate and no epochs, and its vectors serve better than word2vec's (docs/findings.md).
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

CONTEXTS = 20_000  # most frequent words, of which neighbours are counted
SMOOTHING = 0.75  # exponent of their counts, which makes rare ones less surprising (Levy et al., 2015)
ROUNDS, SPARE = 4, 20  # of the randomized singular value decomposition (Halko et al., 2011)


def count_vectors(sentences: Iterable[list[str]], width: int, window: int) -> tuple[list[str], NDArray[np.float32]]:
    """Words, most frequent first, and their vectors."""
    texts = list(sentences)
    words = [word for word, _ in Counter(word for text in texts for word in text).most_common()]
    places = {word: place for place, word in enumerate(words)}
    gap = [-1] * window  # between texts, which are no neighbours
    stream = np.array([place for text in texts for place in (*(places[word] for word in text), *gap)])
    counts = _neighbours(stream, len(words), window)
    return words, _singular_vectors(_information(counts), width)


def save(path: Path, words: list[str], vectors: NDArray[np.float32]) -> None:
    """A binary file as word2vec writes it."""
    with path.open("wb") as file:
        file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
        for word, vector in zip(words, vectors.astype("<f4"), strict=True):
            file.write(word.encode() + b" " + vector.tobytes() + b"\n")


def _neighbours(stream: NDArray[np.int64], size: int, window: int) -> Any:
    """How often a frequent word stands near a word, a neighbour at distance d counted as 1 / d: (words, contexts)."""
    total = sparse.csr_matrix((size, min(size, CONTEXTS)), dtype=np.float32)
    for distance in range(1, window + 1):
        pairs = np.stack([stream[:-distance], stream[distance:]])
        pairs = pairs[:, (pairs >= 0).all(axis=0)]
        for word, context in (pairs, pairs[::-1]):
            near = context < total.shape[1]
            values = np.full(near.sum(), 1 / distance, dtype=np.float32)
            total += sparse.csr_matrix((values, (word[near], context[near])), shape=total.shape)
    return total.tocoo()


def _information(counts: Any) -> Any:
    """log P(word, context) / (P(word) P(context)), where it is positive."""
    of_word = np.asarray(counts.sum(1)).ravel()
    of_context = np.asarray(counts.sum(0)).ravel() ** SMOOTHING
    of_context /= of_context.sum()
    values = np.log(counts.data / (of_word[counts.row] * of_context[counts.col]))
    kept = values > 0
    return sparse.csr_matrix((values[kept], (counts.row[kept], counts.col[kept])), shape=counts.shape)


def _singular_vectors(matrix: Any, width: int) -> NDArray[np.float32]:
    """Those of the largest singular values, on the left (rows, width); without the values, so that all count the
    same."""
    basis = np.random.default_rng(0).normal(size=(matrix.shape[1], width + SPARE)).astype(np.float32)
    for _ in range(ROUNDS):
        basis, _ = np.linalg.qr(matrix.T @ (matrix @ basis))
    return np.linalg.svd(matrix @ basis, full_matrices=False)[0][:, :width].astype(np.float32)
