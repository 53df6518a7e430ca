"""Selects the engine of generation and scoring (torch, compiled CPU steps, CUDA graphs), and runs compiled CPU steps.

All engines draw the same random numbers and their logits agree to rounding, so they generate the same text, unless a
random number falls within rounding error of the boundary between two tokens.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from elman.compiler.cpu.step import CompiledStep, History, RowRunner, Rules, Runner, compile_step, vectors
from elman.compiler.errors import CannotCompile, NoCompiler
from elman.errors import ConfigError
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation import cuda_graph
from elman.generation.sampling import (
    NO_TOKEN,
    DecodingInputs,
    GenerationConfig,
    SampledToken,
    Steps,
    checked_logsumexp,
    invalid_logits,
    new_counts,
)
from elman.ops.state import restore, take_rows, tensors
from elman.ops.taps import listening
from elman.shapes import Lengths, State, Step, Tokens

MIN_TOKENS_TO_COMPILE = 2000  # break-even of one to two seconds of compilation
MAX_BYTES_OF_STEPS = 2**26  # bytes: steps that read more are slower than one parallel forward pass in torch
CHUNK = 16  # tokens between two returns to Python: the most that are computed in vain after a stop


class Engine(NamedTuple):
    name: str
    reason: str
    write: Callable[[DecodingInputs], Steps] | None = None  # None: torch
    program: CompiledStep | None = None  # of the native engine; also used for prefill

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class _Compiled(NamedTuple):
    program: CompiledStep | None
    reason: str
    versions: list[tuple[int, int]]  # address and version of each packed weight
    shapes: list[torch.Size]


_compiled: WeakKeyDictionary[nn.Module, dict[str, _Compiled]] = WeakKeyDictionary()
_tokens_requested: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()


def explain(model: Any, config: GenerationConfig | None = None, rows: int = 1, known: int = 0) -> str:
    """The engine that would be selected, and why: "native: AVX-512, fp32", "captured: a CUDA graph of a step",
    "torch: activations are being recorded"."""
    with inference_mode(model):
        return str(find_engine(model, config or GenerationConfig(), rows, known))


def find_engine(model: Any, config: GenerationConfig, rows: int = 1, known: int = 0) -> Engine:
    """The selected engine, compiled if needed. With `known` tokens the task is scoring or prefill, not generation."""
    if config.engine == "torch":
        return Engine("torch", "as requested")
    if listening():
        engine = Engine("torch", "activations are being recorded")
    elif not isinstance(model, nn.Module):
        engine = Engine("torch", "the model is not a torch module")
    elif config.engine == "captured" or (config.engine == "auto" and device_of(model).type == "cuda"):
        engine = _captured(model, config, known)
    else:
        engine = _native(model, config, known)
    if engine.name == "torch" and config.engine != "auto":
        raise ConfigError(f"generation.engine: {config.engine} cannot run: {engine.reason}; use auto or torch")
    return engine


def _captured(model: nn.Module, config: GenerationConfig, known: int = 0) -> Engine:
    if known:
        return Engine("torch", "known tokens are processed in parallel")
    if config.engine == "auto" and config.max_tokens < cuda_graph.CHUNK:
        return Engine("torch", f"capturing does not pay off for fewer than {cuda_graph.CHUNK} tokens")
    if obstacle := cuda_graph.obstacle(model):
        return Engine("torch", obstacle)
    device = device_of(model).type
    reason = "a CUDA graph of a step" if device == "cuda" else f"the steps of a CUDA graph, run one by one on {device}"
    return Engine("captured", reason, partial(cuda_graph.generate_rows, model))


def _native(model: nn.Module, config: GenerationConfig, known: int) -> Engine:
    device = device_of(model).type
    if device != "cpu":
        return Engine("torch", f"the model is on {device}")
    if config.engine == "auto" and (drawback := _drawback(model, config, known)):
        return Engine("torch", drawback)
    made = _program(model, config.weights)
    if made.program is None:
        return Engine("torch", made.reason)
    return Engine("native", made.reason, partial(generate_rows, made.program), made.program)


def prefill_by_steps(program: CompiledStep, tokens: Sequence[int], state: State) -> tuple[Step, State]:
    """Prefill of one prompt with compiled steps: the logits after the last token, and the state."""
    runner = Runner(program, [part for _, part in tensors(state)])
    for token in torch.tensor(tokens).unsqueeze(1):
        runner.step(token)
    return runner.output, state_of(runner, state)


def state_of(runner: Runner, state: State) -> State:
    """The runner's current state, in the structure of `state`."""
    names = [name for name, _ in tensors(state)]
    return restore(state, dict(zip(names, runner.state, strict=True)))


def prefill_is_faster(model: Any, config: GenerationConfig, known: int) -> bool:
    """Whether one parallel forward pass in torch is expected to be faster for this many known tokens."""
    return known * _bytes(model, config.weights) > MAX_BYTES_OF_STEPS


def generate_rows(program: CompiledStep, inputs: DecodingInputs) -> Steps:
    """Generates with compiled steps: several rows step by step, a single one in loops without Python."""
    logits, state, config, eos_id, start_id, _, recent, _, excluded = inputs
    new_counts(logits[:0], config)  # an error for a bias of a token that the model does not have
    rules = rules_of(config, logits.shape[1], eos_id, start_id, excluded)
    known = [[]] * len(logits) if recent is None else recent.tolist()
    if len(logits) > 1:
        runner = RowRunner(program, min(len(logits), torch.get_num_threads()))
        for row, text in enumerate(known):
            runner.add(take_rows(state, slice(row, row + 1)), logits[row : row + 1])
            runner.set_rules(row, rules, text)
        yield from _generate_together(runner, inputs)
    else:
        single = Runner(program, [part for _, part in tensors(state)])
        single.output.copy_(logits)
        for token in _generate_row(single, rules, History(rules, known[0]), inputs.generators[0], config.max_tokens):
            yield [token]
            if 0 in inputs.done:
                return


def _generate_together(runner: RowRunner, inputs: DecodingInputs) -> Steps:
    """All rows, of which those that end leave."""
    config, count = inputs.config, len(runner)
    rows = list(range(count))
    for left in reversed(range(config.max_tokens)):
        uniforms = [inputs.generators[row].random() if config.temperature else 0.0 for row in rows]
        choices = dict(zip(rows, runner.sample(rows, uniforms), strict=True))
        for row, choice in choices.items():
            if choice.token < 0:
                raise invalid_logits(torch.cat([runner.logits(one) for one in rows]), rows.index(row))
        yield [SampledToken(*choices[row][:2]) if row in choices else None for row in range(count)]
        ended = [row for row in rows if config.stop_at_end and choices[row].token == inputs.eos_id]
        rows = [row for row in rows if row not in ended and row not in inputs.done]
        if not rows or not left:
            return
        tokens = [choices[row].token for row in rows]
        runner.step(rows, [inputs.start_id if token == inputs.eos_id else token for token in tokens])


def rules_of(config: GenerationConfig, vocab: int, eos_id: int, start_id: int, excluded: int | None = None) -> Rules:
    """The settings for compiled sampling."""
    same: dict[str, Any] = {
        name: getattr(config, name) for name in ("top_k", "temperature", "top_p", "min_p", "logit_bias")
    }
    penalties: dict[str, Any] = {"penalty": config.repetition_penalty, "window": config.repetition_window}
    penalties |= {"presence": config.presence_penalty, "frequency": config.frequency_penalty}
    marks: dict[str, Any] = {"end": eos_id, "start": start_id, "stops": config.stop_at_end}
    return Rules(vocab, excluded=NO_TOKEN if excluded is None else excluded, **same, **penalties, **marks)


class StreamScorer:
    """Scores each text as it arrives, in place of `model.losses` for one row.

    `on_engine` is called once for each engine that is used, with the reason.
    """

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


def _generate_row(
    runner: Runner, rules: Rules, history: History, random: np.random.Generator, max_tokens: int
) -> Iterator[SampledToken]:
    for start in range(0, max_tokens, CHUNK):
        count = min(CHUNK, max_tokens - start)
        uniforms = torch.from_numpy(random.random(count)) if rules.temperature else torch.zeros(count).double()
        tokens, log_probs = runner.run(rules, history, uniforms, final=start + count == max_tokens)
        yield from map(SampledToken, tokens, log_probs)
        if len(log_probs) > len(tokens):
            checked_logsumexp(runner.output)  # raises the error about invalid logits
        if len(tokens) < count or (rules.stops and tokens[-1] == rules.end):
            return


def _drawback(model: nn.Module, config: GenerationConfig, known: int) -> str:
    """The reason why torch is expected to be faster, or an empty string."""
    if known and prefill_is_faster(model, config, known):
        return "a parallel forward pass over a long line reads the weights once"
    if config.weights in _compiled.get(model, {}):
        return ""
    _tokens_requested[model] = asked = _tokens_requested.get(model, 0) + (known or config.max_tokens)
    if asked < MIN_TOKENS_TO_COMPILE:
        return f"compilation does not pay off for fewer than {MIN_TOKENS_TO_COMPILE} tokens"
    return ""


def _bytes(model: Any, weights: str) -> int:
    """Approximate memory traffic of one step: weights and state."""
    size = sum(part.numel() for part in model.parameters()) * (1 if weights == "int8" else 4)
    return size + sum(part.nbytes for _, part in tensors(model.initial_state(1)))


def _program(model: nn.Module, weights: str) -> _Compiled:
    """Compiled once per model; weights are repacked when they have changed."""
    own = [*model.parameters(), *model.buffers()]
    versions = [(part.data_ptr(), part._version) for part in own]
    made = _compiled.setdefault(model, {}).get(weights)
    if made is None or (made.versions != versions and made.shapes != [part.shape for part in own]):
        made = _Compiled(*_compile(model, weights), versions, [part.shape for part in own])
    elif made.versions != versions:
        if made.program is not None:
            made.program.renew(own)
        made = made._replace(versions=versions)
    _compiled[model][weights] = made
    return made


def _compile(model: nn.Module, weights: str) -> tuple[CompiledStep | None, str]:
    try:
        with torch.inference_mode(False):
            program = compile_step(model, weights)
    except CannotCompile as problem:
        if isinstance(problem, NoCompiler):
            _warn_once(str(problem))
        return None, str(problem)
    quantized = weights != "int8" or any(weight.format in ("int8", "rows") for weight in program.lowered.weights)
    return program, f"{vectors()}, {weights if quantized else 'fp32: no matrix is large enough for int8'}"


@cache
def _warn_once(problem: str) -> None:
    warnings.warn(f"generation runs in torch, more slowly: {problem}", stacklevel=3)
