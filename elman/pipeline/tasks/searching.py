"""How a model of translation finds its answer: word after word by beam search, or all words at once."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from elman.batches import Ragged
from elman.generation import BeamConfig, beam_search, least_risk
from elman.models import MaskPredict
from elman.tokenizers import Tokenizer

Answer = dict[str, Any]


class SearchConfig(BeamConfig):
    """How translations are looked for."""

    choose: Literal["probability", "least-risk"] = "probability"
    """Which of the hypotheses to give: the one with the best score, or the one most like all others (Kumar and Byrne,
    2004)."""
    iterations: int = Field(4, ge=1)
    """Passes over all words, of models that write them at once."""
    lengths: int = Field(3, ge=1)
    """Lengths that are tried at once, of these models."""


def answers(
    model: Any, source: Ragged, tokenizer: Tokenizer, search: SearchConfig, several: bool = False
) -> Iterator[Answer]:
    """For each row its target, its log-probability, and with `several` all candidates, the best first."""
    if isinstance(model, MaskPredict):
        yield from _at_once(model, source, tokenizer, search)
        return
    if not (several or search.choose == "least-risk"):
        search = search.model_copy(update={"num_best": 1})
    found = beam_search(model, model.start(source), tokenizer.eos_id, search, source_lengths=source.lengths)
    for hypotheses in found.lists(tokenizer.eos_id):
        texts = [tokenizer.decode(hypothesis.tokens) for hypothesis in hypotheses]
        pairs = zip(texts, hypotheses, strict=True)
        candidates = [{"target": text, "log_prob": one.log_prob, "score": one.score} for text, one in pairs]
        if not candidates:
            yield {"target": "", "log_prob": None}
            continue
        best = 0
        if search.choose == "least-risk":
            best = least_risk(texts, [one.log_prob for one in hypotheses])
        answer: Answer = {"target": texts[best], "log_prob": hypotheses[best].log_prob}
        yield answer | ({"candidates": candidates} if several else {})


def _at_once(model: MaskPredict, source: Ragged, tokenizer: Tokenizer, search: SearchConfig) -> Iterator[Answer]:
    written = model.write(source, search.iterations, search.lengths)
    rows = zip(written.tokens.values.tolist(), written.tokens.lengths.tolist(), written.log_probs.tolist(), strict=True)
    for tokens, length, log_probs in rows:
        yield {"target": tokenizer.decode(tokens[:length]), "log_prob": sum(log_probs[:length])}
