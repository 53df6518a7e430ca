"""How surprising are tokens that are known? Each text as soon as it comes, by steps in machine code where they pay."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from elman.compiler.cpu.step import Runner
from elman.generation.engine import find_engine, left
from elman.generation.sampling import GenerationConfig
from elman.ops.state import tensors
from elman.shapes import Lengths, State, Tokens


class StreamScorer:
    """Takes the place of `model.losses` for one row; `listen` hears what reads the texts and why, each once."""

    def __init__(self, model: Any, config: GenerationConfig, listen: Callable[[str], None] = lambda _: None):
        self.model, self.config, self.listen = model, config, listen
        self.told: set[str] = set()  # short and long lines may take turns

    def __call__(self, inputs: Tokens, targets: Tokens, state: State, lengths: Lengths) -> tuple[Tensor, State]:
        """Nats of every target, and the new state."""
        assert len(inputs) == 1, f"{len(inputs)} rows at once"
        engine = find_engine(self.model, self.config, known=inputs.shape[1])
        if str(engine) not in self.told:
            self.told.add(str(engine))
            self.listen(str(engine))
        if engine.program is None:
            return self.model.losses(inputs, targets, state, lengths)
        runner = Runner(engine.program, [part for _, part in tensors(state)])
        return runner.follow(inputs[0], targets[0]).unsqueeze(0), left(runner, state)
