"""Times of texts for the metrics: in the queue, to the first token, between tokens, to the end."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from elman.serving.generation import Finished, Generation, Output, Piece, Scored
from elman.serving.metrics import Metrics


class HasGeneration(Protocol):
    generation: Generation


class Measured:
    """The texts of one request."""

    def __init__(self, metrics: Metrics, model: str, texts: Sequence[HasGeneration]):
        self.metrics, self.model = metrics, model
        self.begun = time.monotonic()
        self.last: dict[Generation, float] = {}
        metrics.prompt_tokens.labels(model).inc(sum(len(text.generation.known) for text in texts))

    def note(self, batch: Sequence[tuple[Generation, Output]]) -> None:
        """Tokens that came together took equally long, each its share of the time since those before."""
        now, metrics, drawn = time.monotonic(), self.metrics, Counter[Generation]()
        for generation, output in batch:
            if isinstance(output, Piece):
                drawn[generation] += 1
            elif isinstance(output, Finished):
                metrics.success.labels(self.model, output.reason).inc()
                metrics.latency.labels(self.model).observe(now - self.begun)
        for generation in dict.fromkeys(
            generation for generation, output in batch if isinstance(output, Piece | Scored)
        ):
            if generation not in self.last:
                metrics.queue.labels(self.model).observe(max(generation.entered - self.begun, 0))
                metrics.first_token.labels(self.model).observe(now - self.begun)
            elif drawn[generation]:
                metrics.inter_token.labels(self.model).observe((now - self.last[generation]) / drawn[generation])
            self.last[generation] = now
        metrics.generation_tokens.labels(self.model).inc(drawn.total())
