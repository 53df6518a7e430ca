"""Forced scoring: the log-probability of a given target, by teacher forcing (Williams and Zipser, 1989)."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from elman.batches import length_batches
from elman.batches.groups import groups
from elman.errors import ConfigError, DataError
from elman.evaluation.inference_mode import device_of
from elman.generation import forced_log_probs
from elman.models import MaskPredict
from elman.pipeline.tasks.examples import CHUNK
from elman.pipeline.tasks.lines import missing, numbered, text_of
from elman.tokenizers import Tokenizer


@dataclass(frozen=True)
class PairScore:
    source: str
    target: str
    log_prob: float
    """Natural logarithm of the target's probability given the source, its end counted, unknown words as `<unk>`."""
    tokens: int
    """Of the target; the end is one of them."""
    unknowns: int
    """Of the target."""

    @property
    def log_prob_per_token(self) -> float:
        return self.log_prob / self.tokens

    def line(self) -> str:
        return f"{self.log_prob:.4f}\t{self.log_prob_per_token:.4f}\t{self.source}\t{self.target}"

    def plain(self) -> dict[str, Any]:
        return asdict(self) | {
            "log_prob_per_token": self.log_prob_per_token,
            "perplexity": math.exp(min(-self.log_prob_per_token, 700)),
        }


class ForcedScorer:
    """Scores pairs of texts by a model and its tokenizers."""

    def __init__(self, model: Any, source: Tokenizer, target: Tokenizer, batch_size: int):
        if not has_log_probs(model):
            raise ConfigError(
                "a model that writes all words at once has no probability of a target: it never sums over the orders "
                "in which words are filled in; elman eval gives its loss, and models that write word after word a score"
            )
        self.model, self.source, self.target, self.batch_size = model, source, target, batch_size

    def scores(self, lines: Iterable[Any]) -> Iterator[PairScore]:
        """One for each line, in order: two texts, two columns, or an object with source and target."""
        for some in groups(numbered(lines, read_pair), CHUNK):
            yield from self.score_batch(some)

    def score_batch(self, pairs: Sequence[tuple[str, str]]) -> list[PairScore]:
        end = [self.target.eos_id]
        sources = self.source.encode_batch([source for source, _ in pairs])
        encoded = zip(sources, self.target.encode_batch([target for _, target in pairs]), strict=True)
        rows = [{"source": np.asarray(source), "target": np.concatenate([target, end])} for source, target in encoded]
        found = np.zeros(len(rows))
        for indices, some in length_batches(rows, "target", self.batch_size):
            batch = some.to(device_of(self.model))
            found[indices] = forced_log_probs(self.model, batch.ragged("source"), batch.ragged("target")).cpu().numpy()
        return [
            PairScore(*pair, float(log_prob), len(row["target"]), len(self.target.unknowns(pair[1])))
            for pair, log_prob, row in zip(pairs, found, rows, strict=True)
        ]


def has_log_probs(model: Any) -> bool:
    return not isinstance(model, MaskPredict)


def read_pair(line: Any) -> tuple[str, str]:
    if isinstance(line, dict):
        if not isinstance(line.get("target"), str):
            raise missing(line, "target")
        return text_of(line, "source", "text"), line["target"]
    parts = tuple(line.split("\t") if isinstance(line, str) else line)
    if len(parts) != 2 or not all(isinstance(part, str) for part in parts):
        raise DataError(
            f"a pair is two columns, a source and its target, not {len(parts)}", remedy="put one tab between them"
        )
    return parts[0], parts[1]
