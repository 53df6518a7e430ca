"""Log-probabilities of each word of a document, and of the wrong form at each mark."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from elman.corpus.document import Document
from elman.errors import DataError
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.models import prediction_of

LOGITS = 2**24  # maximum number of logits per batch
POOL = 1024  # documents that are sorted by length together


class WordProbabilities(NamedTuple):
    document: Document
    words: list[str]
    log_probs: list[float]  # of each word, and of the end
    wrong: list[float | None]  # of the wrong form at each mark; None if one of the forms is unknown


class _Encoded(NamedTuple):
    document: Document
    words: list[str]
    ids: list[int]
    wrong: list[int]  # the wrong form at each mark


def word_probabilities(model: Any, tokenizer: Any, documents: Iterable[Document]) -> Iterator[WordProbabilities]:
    """Scores documents in batches of similar length, so not in their order."""
    documents = iter(documents)
    forms: dict[str, int] = {}
    while pool := list(islice(documents, POOL)):
        waiting = [_encode(tokenizer, document, forms) for document in pool]
        waiting.sort(key=lambda encoded: -len(encoded.ids))
        while waiting:
            longest = len(waiting[0].ids) + 1
            rows = max(LOGITS // (longest * tokenizer.vocab_size), 1)
            yield from _score_batch(model, tokenizer, waiting[:rows])
            waiting = waiting[rows:]


def _encode(tokenizer: Any, document: Document, forms: dict[str, int]) -> _Encoded:
    """Checks that every word is one token, in the text as on its own; `forms` caches the tokens of words."""
    words = document.text.split()
    for word in [*words, *(mark.wrong for mark in document.marks)]:
        if word not in forms:
            ids = tokenizer.encode(word)
            if len(ids) != 1:
                raise _not_words(document, f"the word {word!r} takes {len(ids)} tokens")
            forms[word] = int(ids[0])
    ids = [forms[word] for word in words]
    if list(tokenizer.encode(document.text)) != ids:
        raise _not_words(document, f"the tokens of {document.text[:40]!r} are not those of its words")
    return _Encoded(document, words, ids, [forms[mark.wrong] for mark in document.marks])


def _not_words(document: Document, reason: str) -> DataError:
    return DataError(
        f"{reason}, but this comparison needs one token per word",
        file=document.source or None,
        line=document.line or None,
        remedy="use the word tokenizer",
    )


def _score_batch(model: Any, tokenizer: Any, batch: list[_Encoded]) -> Iterator[WordProbabilities]:
    device, eos, unknown = device_of(model), tokenizer.eos_id, tokenizer.unk_id
    lengths = torch.tensor([len(encoded.ids) + 1 for encoded in batch])
    texts = [torch.tensor([*encoded.ids, eos]) for encoded in batch]
    targets = pad_sequence(texts, batch_first=True, padding_value=eos)
    inputs = torch.cat([torch.full((len(batch), 1), eos), targets[:, :-1]], dim=1)
    rows = [row for row, encoded in enumerate(batch) for _ in encoded.wrong]
    places = [mark.word for encoded in batch for mark in encoded.document.marks]
    wrong = [form for encoded in batch for form in encoded.wrong]
    with inference_mode(model):
        logits = _logits(model, inputs.to(device), targets.to(device), lengths.to(device))
        totals = logits.float().logsumexp(dim=-1)
        right = logits.gather(-1, targets.to(device).unsqueeze(-1)).squeeze(-1)
        right_log_probs = (right.float() - totals).cpu()
        wrong_log_probs = iter((logits[rows, places, wrong].float() - totals[rows, places]).tolist())
    for encoded, log_probs in zip(batch, right_log_probs, strict=True):
        document, words, ids, forms = encoded
        pairs = [(ids[mark.word], form) for mark, form in zip(document.marks, forms, strict=True)]
        values = [
            None if unknown in pair else value
            for pair, value in zip(pairs, islice(wrong_log_probs, len(pairs)), strict=True)
        ]
        yield WordProbabilities(document, words, log_probs[: len(ids) + 1].tolist(), values)


def _logits(model: Any, inputs: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
    """Logits of every token at each target position, given the left context, or both sides in masked models."""
    if prediction_of(model) == "masked":
        return model.masked_logits(targets, lengths)
    return model.forward(inputs, model.initial_state(len(inputs)), lengths)[0]
