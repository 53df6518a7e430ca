"""Streaming scorer: token losses of each text as it arrives, with compiled steps where these are faster."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from elman.compiler.cpu.step import Runner
from elman.generation.engine import find_engine, state_of
from elman.generation.sampling import GenerationConfig
from elman.ops.state import tensors
from elman.shapes import Lengths, State, Tokens


class StreamScorer:
    """Replaces `model.losses` for one row; `on_engine` is called once for each engine that is used, with the reason."""

    def __init__(self, model: Any, config: GenerationConfig, on_engine: Callable[[str], None] = lambda _: None):
        self.model, self.config, self.on_engine = model, config, on_engine
        self._reported: set[str] = set()

    def __call__(self, inputs: Tokens, targets: Tokens, state: State, lengths: Lengths) -> tuple[Tensor, State]:
        """Nats of every target, and the new state."""
        assert len(inputs) == 1, f"{len(inputs)} rows at once"
        engine = find_engine(self.model, self.config, known=inputs.shape[1])
        if str(engine) not in self._reported:
            self._reported.add(str(engine))
            self.on_engine(str(engine))
        if engine.program is None:
            return self.model.losses(inputs, targets, state, lengths)
        runner = Runner(engine.program, [part for _, part in tensors(state)])
        return runner.follow(inputs[0], targets[0]).unsqueeze(0), state_of(runner, state)
