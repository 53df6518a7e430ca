"""How a text without a prompt begins: after a passage of held-out text, where a model hardly ever saw a text begin.

A text file is one document, or few where parts are held out, so that `<eos>` and a fresh state are rare in training.
What a model says after them is noise; after a passage that ends at a boundary it begins as texts do after boundaries.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elman.batches import TokenStore
from elman.errors import DataError
from elman.tokenizers import Tokenizer

LEARNT = 300  # documents from which a model learns how a document begins
LONG = 500  # mean tokens of a document: with shorter ones `<eos>` is no rare token
PASSAGE = 64  # tokens at most; the state of a recurrent model is warm after about fifty
SEARCHED = 100_000  # tokens in which a boundary is looked for
REPEATED = 3  # times that a boundary must occur
BOUNDARIES = ("\n\n", "\n", ". ", "", " ")  # the first that the text has; "": any token that ends a sentence
SENTENCE_ENDS = (".", "!", "?", "。")


def opening_tokens(tokenizer: Tokenizer, train: TokenStore, held_out: TokenStore) -> list[int]:
    """The passage before the first token; none where beginnings are learnt, or the text has no boundary."""
    if train.facts.documents >= LEARNT or train.facts.tokens < LONG * train.facts.documents:
        return []
    text = np.asarray(held_out.tokens[:SEARCHED])
    for boundary in BOUNDARIES:
        ends = _ends(text, tokenizer, boundary)
        if len(ends) >= REPEATED:
            end = ends[ends >= PASSAGE].min(initial=ends[-1])
            return text[max(0, end - PASSAGE) : end].tolist()
    return []


def stored_opening(tokenizer: Tokenizer, folder: Path) -> list[int]:
    """The same from the encoded data of a run; none where it has no data, or data of another vocabulary."""
    try:
        train = TokenStore.open(folder, "train")
        held_out = TokenStore.open(folder, "valid") if (folder / "valid.json").exists() else train
    except DataError:
        return []
    found = opening_tokens(tokenizer, train, held_out)
    return found if max(found, default=0) < tokenizer.vocab_size else []


def _ends(text: NDArray[Any], tokenizer: Tokenizer, boundary: str) -> NDArray[np.int64]:
    """The places after each occurrence of a boundary, before the end of the text."""
    if not boundary:
        last = [id for id in range(tokenizer.vocab_size) if tokenizer.token(id).endswith(SENTENCE_ENDS)]
        return np.flatnonzero(np.isin(text[:-1], last)) + 1
    ids = tokenizer.encode(boundary)
    if not len(ids) or tokenizer.unk_id in ids or tokenizer.decode(ids.tolist()) != boundary:
        return np.empty(0, dtype=np.int64)  # it is no token, as line breaks are none of words
    starts = np.ones(max(0, len(text) - len(ids)), dtype=bool)
    for offset, token in enumerate(ids):
        starts &= text[offset : offset + len(starts)] == token
    return np.flatnonzero(starts) + len(ids)
