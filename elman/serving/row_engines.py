"""Chooses what computes the rows of a model: compiled steps on a CPU, CUDA graphs on a GPU, or torch."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from elman.compiler.cpu.step import CompiledStep, RowRunner, Turn
from elman.errors import ConfigError, ElmanError
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation.cuda_graph import obstacle
from elman.generation.engine import find_engine, rules_of
from elman.generation.sampling import GenerationConfig, invalid_logits
from elman.serving.rows import Choice, Draw, Feed, Marks, Plan, Progress, Rows, Rule, TorchRows
from elman.serving.settings import ServeConfig
from elman.serving.slot_rows import SlotRows
from elman.shapes import State


def rows_for(model: Any, config: ServeConfig) -> Rows:
    """The fastest engine that can run the model."""
    if device_of(model).type == "cuda":
        problem = obstacle(model)
        return _one_by_one(model, problem) if problem else SlotRows(model, config.max_batch)
    settings = GenerationConfig.make({"engine": "native", "weights": config.weights})
    try:
        with inference_mode(model):
            engine = find_engine(model, settings)
    except ConfigError as error:
        return _one_by_one(model, str(error))
    assert engine.program is not None, "a native engine has a program"
    return CompiledRows(engine.program, str(engine), config.threads or torch.get_num_threads())


def _one_by_one(model: Any, reason: str) -> Rows:
    rows = TorchRows(model)
    rows.name = f"{rows.name}: {reason}"
    return rows


class CompiledRows(Rows):
    """Compiled steps: the weights are read once for all rows, and threads divide the rows."""

    def __init__(self, program: CompiledStep, name: str, threads: int):
        self.name, self.runner = name, RowRunner(program, threads)
        self.vocabulary = program.lowered.output.shape[-1]

    def add(self, state: State, rule: Rule) -> int:
        row = self.runner.add(state)
        self.runner.set_rules(
            row, rules_of(rule.config, self.vocabulary, rule.end, rule.start, rule.excluded), rule.known
        )
        return row

    def remove(self, row: int) -> None:
        self.runner.remove(row)

    def state(self, row: int) -> State:
        return self.runner.state(row)

    def step(self, feeds: Sequence[Feed]) -> None:
        rows, tokens, wanted = zip(*feeds, strict=True)
        self.runner.step(rows, tokens, wanted)

    def choose(self, draws: Sequence[Draw]) -> list[Choice | ElmanError]:
        found: dict[int, Choice | ElmanError] = {}
        kinds = sorted({(draw.top, draw.token is None) for draw in draws})  # usually one
        for top, drawn in kinds:
            same = [draw for draw in draws if (draw.top, draw.token is None) == (top, drawn)]
            rows = [draw.row for draw in same]
            if drawn:
                choices = self.runner.sample(rows, [draw.uniform for draw in same], top)
            else:
                choices = self.runner.score(rows, [draw.token for draw in same if draw.token is not None], top)
            for row, choice in zip(rows, choices, strict=True):
                valid = choice.token >= 0 and math.isfinite(choice.log_prob)
                found[row] = (
                    Choice(choice.token, choice.log_prob, choice.top)
                    if valid
                    else invalid_logits(self.runner.logits(row), 0)
                )
        return [found[draw.row] for draw in draws]

    def begin(self, plan: Plan) -> None:
        self.runner.begin(Turn(plan.row, plan.tokens, plan.uniforms, plan.targets, plan.top))

    def advance(self, marks: Marks, seconds: float, steps: int, beside: int) -> list[int]:
        return self.runner.advance(seconds, steps, beside)

    def progress(self, row: int) -> Progress:
        read, tokens, log_probs, tops = self.runner.progress(row)
        tops = tops or [[]] * len(tokens)
        if math.isfinite(sum(log_probs)):
            return Progress(read, tokens, log_probs, tops)
        good = next(place for place, value in enumerate(log_probs) if not math.isfinite(value))
        problem = invalid_logits(self.runner.logits(row), 0)
        return Progress(read, tokens[:good], log_probs[:good], tops[:good], problem)

    def stop(self, row: int) -> None:
        """Removing a row ends its plan."""
