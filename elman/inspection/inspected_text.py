"""A text and the model that reads it: the interface between tasks and all views.

Tasks differ in what they read and predict; views know only this class.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from elman.batches import Ragged, collate
from elman.errors import ConfigError, nan_error
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.ops import taps

CAUTIONS = {  # (causal, trained at every token)
    (True, False): "Trained on whole texts only: predictions before the last token are not meaningful.",
    (False, False): "The model is bidirectional: there is one prediction, for the whole text.",
}
PRECISIONS = {"float32": torch.float32, "float64": torch.float64}  # float64 shows what underflows in float32


class Run(Protocol):
    def __call__(self, copies: int, pads: int = 0) -> Tensor: ...


@dataclass(frozen=True)
class InspectedText:
    model: Any
    run: Run
    """Forward pass of `copies` of the text: logits (copies, positions, outcomes), with gradients where enabled.
    `pads` adds padding as a longer text in the batch would; its positions come after the real ones."""
    tokens: Mapping[str, list[str]]
    """The token at each position, by prefix of the site; "" for all others, the main sequence first."""
    goal: Literal["next", "own", "label", "tag", "value"]
    """What is predicted: the next token, a masked one itself, the class of the text, a tag, or a number."""
    outcome: Callable[[int], str]  # the name of an outcome: a token, a label or a tag
    truth: Sequence[int] = ()  # the observed outcomes of the first positions, where they are known
    embedding: str = "embedding"  # the site of the token embeddings
    multi_label: bool = False  # whether a text can have several labels at once (sigmoid instead of softmax)
    caution: str = ""  # a note on how to read its figures
    call: str = ""  # the Python expression that makes it, where known

    @property
    def main(self) -> list[str]:
        """Tokens beside the scores; of a translation those of the target."""
        return next(iter(self.tokens.values()))

    @property
    def read(self) -> list[str]:
        """Tokens beside the embeddings; of a translation those of the source."""
        return self.tokens_of(self.embedding)

    def tokens_of(self, site: str) -> list[str]:
        return tokens_of(self.tokens, site)

    def scores(self, pads: int = 0) -> Tensor:
        """Logits (positions, outcomes) of the text, and of its padding."""
        with inference_mode(self.model):
            scores = self.run(1, pads)[0]
        if scores[: len(self.main)].isnan().any():  # at padding they may be
            raise nan_error()
        return scores

    def record(self, *sites: str, pads: int = 0) -> dict[str, Tensor]:
        """Values (batch, time, ...) of the sites in one forward pass through the reference implementation."""
        with inference_mode(self.model), taps.record(*sites) as seen:
            self.run(1, pads)
        return {site: seen[site] for site in seen}

    def log_probabilities(self, scores: Tensor | None = None) -> Tensor:
        """Of every outcome at every position of some scores, in float32 or wider; of a regression its value."""
        scores = self.scores() if scores is None else scores
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if self.goal == "value":
            return wide
        return torch.nn.functional.logsigmoid(wide) if self.multi_label else wide.log_softmax(-1)


def tokens_of(tokens: Mapping[str, list[str]], site: str) -> list[str]:
    """Tokens beside the positions of a site, by its longest known prefix; reversed for a backward layer."""
    if "encoder" in tokens and site.endswith(("cross-attention.key", "cross-attention.value")):
        return tokens["encoder"]
    found = tokens[max((part for part in tokens if site.startswith(part)), key=len, default=next(iter(tokens)))]
    return found[::-1] if "backward" in site.split(".") else found


def inspect_language_model(model: Any, ids: Sequence[int], token: Callable[[int], str], start: int) -> InspectedText:
    """For a causal language model; the start token precedes the text."""
    run = text_run(model, [start, *ids])
    return InspectedText(model, run, {"": [token(id) for id in (start, *ids)]}, "next", token, list(ids))


def text_run(model: Any, ids: Sequence[int]) -> Run:
    """The forward pass of a language model."""
    row = torch.tensor([ids], device=device_of(model))

    def run(copies: int, pads: int = 0) -> Tensor:
        text = Ragged(row, torch.tensor([len(ids)], device=row.device)).padded(pads)
        lengths = text.lengths.expand(copies) if pads else None
        return model(text.values.expand(copies, -1), None, lengths)[0]

    return run


def inspect_classifier(model: Any, ids: Sequence[int], tokens: list[str], labels: Sequence[str]) -> InspectedText:
    return inspect_text_reader(model, ids, tokens, labels.__getitem__, multi_label=model.several)


def inspect_text_reader(
    model: Any,
    ids: Sequence[int],
    tokens: list[str],
    outcome: Callable[[int], str],
    multi_label: bool = False,
    goal: Literal["label", "value"] = "label",
    scores: Callable[[Tensor], Tensor] = lambda logits: logits,
) -> InspectedText:
    """Predictions after each token of a causal model, else one for the whole text; `scores` converts logits."""
    row = {"text": np.asarray(ids)}

    def run(copies: int, pads: int = 0) -> Tensor:
        text = collate([row] * copies).padded(pads).to(device_of(model)).ragged("text")
        return scores(model.running_logits(text) if model.causal else model.logits(text).unsqueeze(1))

    caution = CAUTIONS.get((model.causal, model.config.every_token), "")
    return InspectedText(model, run, {"": tokens}, goal, outcome, multi_label=multi_label, caution=caution)


def dtype_of(precision: str) -> torch.dtype:
    if precision not in PRECISIONS:
        raise ConfigError(f"precision {precision!r}: one of {', '.join(PRECISIONS)}")
    return PRECISIONS[precision]


def in_precision(model: Any, precision: str) -> Any:
    """The model, or a converted copy where its dtype is another; n-gram models have no parameters."""
    dtype = dtype_of(precision)
    if not isinstance(model, nn.Module) or all(one.dtype == dtype for one in model.parameters()):
        return model
    return deepcopy(model).to(dtype)
