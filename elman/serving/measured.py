"""Times of texts for the metrics: in the queue, to the first token, between tokens, to the end."""

import time
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
        for text in texts:
            metrics.prompt_tokens.labels(model).inc(len(text.generation.known))

    def note(self, batch: Sequence[tuple[Generation, Output]]) -> None:
        now, metrics, drawn = time.monotonic(), self.metrics, 0
        for generation, output in batch:
            if isinstance(output, Finished):
                metrics.success.labels(self.model, output.reason).inc()
                metrics.latency.labels(self.model).observe(now - self.begun)
            elif isinstance(output, Piece | Scored) and generation not in self.last:
                metrics.queue.labels(self.model).observe(max(generation.entered - self.begun, 0))
                metrics.first_token.labels(self.model).observe(now - self.begun)
            elif isinstance(output, Piece) and now > self.last[generation]:
                metrics.inter_token.labels(self.model).observe(now - self.last[generation])
            if isinstance(output, Piece):
                drawn += 1
            self.last[generation] = now
        metrics.generation_tokens.labels(self.model).inc(drawn)
