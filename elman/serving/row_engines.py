"""Chooses what computes the rows of a model: compiled steps on a CPU, or torch."""

from collections.abc import Sequence
from typing import Any

import torch

from elman.compiler.cpu.step import CompiledStep, RowRunner
from elman.errors import ConfigError
from elman.evaluation.inference_mode import inference_mode
from elman.generation.engine import find_engine
from elman.generation.sampling import GenerationConfig
from elman.serving.rows import Choice, Draw, Feed, Rows, TorchRows, choose
from elman.serving.settings import ServeConfig
from elman.shapes import State


def rows_for(model: Any, config: ServeConfig) -> Rows:
    """The fastest engine that can run the model."""
    settings = GenerationConfig.make({"engine": "native", "weights": config.weights})
    try:
        with inference_mode(model):
            engine = find_engine(model, settings)
    except ConfigError as problem:
        rows = TorchRows(model)
        rows.name = f"{rows.name}: {problem}"
        return rows
    assert engine.program is not None, "a native engine has a program"
    return CompiledRows(engine.program, str(engine), config.threads or torch.get_num_threads())


class CompiledRows(Rows):
    """Compiled steps: the weights are read once for all rows, and threads divide the rows."""

    def __init__(self, program: CompiledStep, name: str, threads: int):
        self.name, self.runner = name, RowRunner(program, threads)

    def add(self, state: State) -> int:
        return self.runner.add(state)

    def remove(self, row: int) -> None:
        self.runner.remove(row)

    def state(self, row: int) -> State:
        return self.runner.state(row)

    def step(self, feeds: Sequence[Feed]) -> None:
        rows, tokens, wanted = zip(*feeds, strict=True)
        self.runner.step(rows, tokens, wanted)

    def choose(self, draws: Sequence[Draw]) -> list[Choice | Exception]:
        return [choose(self.runner.logits(draw.row), draw) for draw in draws]
