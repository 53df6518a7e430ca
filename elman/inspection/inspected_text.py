"""A text as a model reads it: how to read it (again, in several copies), and what stands at each position.

Tasks differ in what they read and what they answer; those who look inside only know this.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from elman.batches import Ragged, collate
from elman.evaluation.inference_mode import device_of

CAUTIONS = {
    (True, False): "Trained on whole texts only: verdicts before the end were never asked for.",
    (False, False): "The model sees both sides: there is one verdict, on the whole text.",
}


class Run(Protocol):
    def __call__(self, copies: int, pads: int = 0) -> Tensor: ...


@dataclass(frozen=True)
class InspectedText:
    model: Any
    run: Run
    """Read so many copies at once: scores (copies, positions, outcomes), with gradients where they are on; with so much
    padding beside each as a longer text in the batch would bring, whose positions come after the real ones."""
    tokens: Mapping[str, list[str]]
    """What stands at each position, by how names of sites begin; "" for all others, and the main one first."""
    goal: Literal["next", "own", "label", "tag", "value"]
    """What each position's scores are about: the next token, the one that stands there, the text (a label, or the value
    of a number), or the word."""
    outcome: Callable[[int], str]
    """The name of an outcome: a token, a label or a tag."""
    truth: Sequence[int] = ()
    """The outcome that came, for the first positions as far as it is known."""
    embedding: str = "embedding"
    """The site of the vectors that are read."""
    several: bool = False
    """Whether outcomes exclude each other no more: labels of which a text can have several."""
    caution: str = ""
    """What one must know to read a picture of it rightly."""
    call: str = ""
    """The Python that makes it, where that is known."""

    @property
    def main(self) -> list[str]:
        """What the scores stand beside: of a translation what is written."""
        return next(iter(self.tokens.values()))

    @property
    def read(self) -> list[str]:
        """What the vectors of `embedding` stand for."""
        return self.tokens_of(self.embedding)

    def tokens_of(self, site: str) -> list[str]:
        return tokens_of(self.tokens, site)


def tokens_of(tokens: Mapping[str, list[str]], site: str) -> list[str]:
    """The tokens beside a site's positions: those of the longest beginning of its name, in the order of reading."""
    if "encoder" in tokens and site.endswith(("cross-attention.key", "cross-attention.value")):
        return tokens["encoder"]
    found = tokens[max((part for part in tokens if site.startswith(part)), key=len, default=next(iter(tokens)))]
    return found[::-1] if "backward" in site.split(".") else found


def inspect_language_model(model: Any, ids: Sequence[int], token: Callable[[int], str], start: int) -> InspectedText:
    """Of a model that reads from left to right: the start stands before the text."""
    run = text_run(model, [start, *ids])
    return InspectedText(model, run, {"": [token(id) for id in (start, *ids)]}, "next", token, list(ids))


def text_run(model: Any, ids: Sequence[int]) -> Run:
    """Of a model of language."""
    given = torch.tensor([ids], device=device_of(model))

    def run(copies: int, pads: int = 0) -> Tensor:
        text = Ragged(given, torch.tensor([len(ids)], device=given.device)).padded(pads)
        lengths = text.lengths.expand(copies) if pads else None
        return model(text.values.expand(copies, -1), None, lengths)[0]

    return run


def inspect_classifier(model: Any, ids: Sequence[int], tokens: list[str], labels: Sequence[str]) -> InspectedText:
    return inspect_text_reader(model, ids, tokens, labels.__getitem__, several=model.several)


def inspect_text_reader(
    model: Any,
    ids: Sequence[int],
    tokens: list[str],
    outcome: Callable[[int], str],
    several: bool = False,
    goal: Literal["label", "value"] = "label",
    scores: Callable[[Tensor], Tensor] = lambda logits: logits,
) -> InspectedText:
    """Verdicts after each token where the model is causal, else one on the whole text; `scores` converts logits."""
    row = {"text": np.asarray(ids)}

    def run(copies: int, pads: int = 0) -> Tensor:
        text = collate([row] * copies).padded(pads).to(device_of(model)).ragged("text")
        return scores(model.running_logits(text) if model.causal else model.logits(text).unsqueeze(1))

    caution = CAUTIONS.get((model.causal, model.config.every_token), "")
    return InspectedText(model, run, {"": tokens}, goal, outcome, several=several, caution=caution)
