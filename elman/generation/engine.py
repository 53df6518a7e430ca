"""What takes the steps of a text, and stepping in machine code: when it is used, and how tokens come from it.

The random numbers are those that torch's path would draw, and logits agree to rounding: the texts are the same, unless
a number falls between two tokens as exactly as that.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from elman.compiler.cpu.step import CompiledStep, Rules, Runner, compile_step, vectors
from elman.compiler.errors import CannotCompile, NoCompiler
from elman.errors import ConfigError
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation import cuda_graph
from elman.generation.sampling import NOTHING, Begun, Chosen, GenerationConfig, Steps, totals
from elman.ops.state import restore, take_rows, tensors
from elman.ops.taps import listening
from elman.shapes import State, Step

WORTH = 2000  # tokens after which a second or two of compiling has paid
AT_ONCE = 2**26  # bytes that steps read in the time that torch takes for a short line at once
CHUNK = 16  # tokens between two returns to Python: what a reader who stops may have asked for in vain


class Engine(NamedTuple):
    name: str
    reason: str
    write: Callable[[Begun], Steps] | None = None  # none: torch
    program: CompiledStep | None = None  # of the native engine: what known tokens are stepped through with

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class _Made(NamedTuple):
    program: CompiledStep | None
    reason: str
    versions: list[tuple[int, int]]  # of the weights that were packed
    shapes: list[torch.Size]


_made: WeakKeyDictionary[nn.Module, dict[str, _Made]] = WeakKeyDictionary()
_written: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
_warned: set[str] = set()


def explain(model: Any, config: GenerationConfig | None = None, rows: int = 1, known: int = 0) -> str:
    """What would take the steps of such texts, and why: "native: AVX-512, fp32", "captured: a CUDA graph of a step",
    "torch: a recorder is listening"."""
    with inference_mode(model):
        return str(find_engine(model, config or GenerationConfig(), rows, known))


def find_engine(model: Any, config: GenerationConfig, rows: int = 1, known: int = 0) -> Engine:
    """What writes the tokens, made if need be, or the reason why torch does.

    With `known` tokens nothing is written: they are stepped through, or read at once by torch.
    """
    if config.engine == "torch":
        return Engine("torch", "as asked")
    if obstacle := _obstacle(model):
        engine = Engine("torch", obstacle)
    elif config.engine == "captured" or (config.engine == "auto" and device_of(model).type == "cuda"):
        engine = _captured(model, config, known)
    else:
        engine = _native(model, config, rows, known)
    if engine.name == "torch" and config.engine != "auto":
        raise ConfigError(f"generation.engine: {config.engine} cannot run: {engine.reason}; take auto or torch")
    return engine


def _captured(model: nn.Module, config: GenerationConfig, known: int = 0) -> Engine:
    if known:
        return Engine("torch", "tokens that are known are read at once")
    if config.engine == "auto" and config.max_tokens < cuda_graph.CHUNK:
        return Engine("torch", f"for fewer than {cuda_graph.CHUNK} tokens capturing does not pay")
    if obstacle := cuda_graph.obstacle(model):
        return Engine("torch", obstacle)
    kind = device_of(model).type
    told = "a CUDA graph of a step" if kind == "cuda" else f"steps as for a graph, but one by one on {kind}"
    return Engine("captured", told, partial(cuda_graph.write_rows, model))


def _native(model: nn.Module, config: GenerationConfig, rows: int, known: int) -> Engine:
    kind = device_of(model).type
    if kind != "cpu":
        return Engine("torch", f"the model is on {kind}")
    if config.engine == "auto" and (drawback := _drawback(model, config, rows, known)):
        return Engine("torch", drawback)
    made = _program(model, config.weights)
    if made.program is None:
        return Engine("torch", made.reason)
    return Engine("native", made.reason, partial(write_rows, made.program), made.program)


def read(program: CompiledStep, tokens: Sequence[int], state: State) -> tuple[Step, State]:
    """Known tokens of one text, step by step: the logits after the last, and the state."""
    runner = Runner(program, [part for _, part in tensors(state)])
    for token in torch.tensor(tokens).unsqueeze(1):
        runner.step(token)
    return runner.output, left(runner, state)


def left(runner: Runner, state: State) -> State:
    """What a runner has made of a state."""
    names = [name for name, _ in tensors(state)]
    return restore(state, dict(zip(names, runner.state, strict=True)))


def reads_at_once(model: Any, config: GenerationConfig, known: int) -> bool:
    """Whether torch is expected to be faster with so many tokens that are known."""
    return known * _bytes(model, config.weights) > AT_ONCE


def write_rows(program: CompiledStep, begun: Begun) -> Steps:
    """By steps in machine code, each text by itself."""
    logits, state, config, eos_id, start_id, randoms, recent, done = begun
    vocab = logits.shape[1]
    rules = Rules(vocab, config.top_k, config.repetition_window, eos_id, start_id, config.stop_at_end)
    rules.temperature, rules.top_p, rules.penalty = config.temperature, config.top_p, config.repetition_penalty
    if recent is None:
        recent = torch.full((len(logits), config.repetition_window), NOTHING)
    writers = []
    for row, random in enumerate(randoms):
        runner = Runner(program, [part for _, part in tensors(take_rows(state, slice(row, row + 1)))])
        runner.output.copy_(logits[row : row + 1])
        writers.append(_write(runner, rules, random, recent[row].clone(), config.max_tokens))
    while True:
        step = [None if row in done else next(writer, None) for row, writer in enumerate(writers)]
        if not any(step):
            return
        yield step


def _write(
    runner: Runner, rules: Rules, random: np.random.Generator, recent: Tensor, max_tokens: int
) -> Iterator[Chosen]:
    for start in range(0, max_tokens, CHUNK):
        count = min(CHUNK, max_tokens - start)
        uniforms = torch.from_numpy(random.random(count)) if rules.temperature else torch.zeros(count).double()
        tokens, log_probs = runner.run(rules, uniforms, recent, final=start + count == max_tokens)
        yield from map(Chosen, tokens, log_probs)
        if len(log_probs) > len(tokens):
            totals(runner.output)  # says what is wrong with them
        if len(tokens) < count or (rules.stops and tokens[-1] == rules.end):
            return


def _obstacle(model: Any) -> str:
    """Why torch alone can run, if that is clear before anything is tried."""
    if listening():
        return "a recorder is listening"
    return "" if isinstance(model, nn.Module) else "the model is not a network"


def _drawback(model: nn.Module, config: GenerationConfig, rows: int, known: int) -> str:
    """Why torch is expected to be faster."""
    if rows > 1:
        return f"{rows} texts at once share one reading of the weights"
    if known and reads_at_once(model, config, known):
        return "all tokens of a long line share one reading of the weights"
    if config.weights in _made.get(model, {}):
        return ""
    _written[model] = asked = _written.get(model, 0) + (known or config.max_tokens)
    if asked < WORTH:
        return f"for fewer than {WORTH} tokens compiling does not pay"
    return ""


def _bytes(model: Any, weights: str) -> int:
    """About so many are read in each step: the weights, and the state."""
    size = sum(part.numel() for part in model.parameters()) * (1 if weights == "int8" else 4)
    return size + sum(part.nbytes for _, part in tensors(model.initial_state(1)))


def _program(model: nn.Module, weights: str) -> _Made:
    """Compiled once for each model; packed again where its weights have changed."""
    own = [*model.parameters(), *model.buffers()]
    versions = [(part.data_ptr(), part._version) for part in own]
    made = _made.setdefault(model, {}).get(weights)
    if made is None or (made.versions != versions and made.shapes != [part.shape for part in own]):
        made = _Made(*_compile(model, weights), versions, [part.shape for part in own])
    elif made.versions != versions:
        if made.program is not None:
            made.program.renew(own)
        made = made._replace(versions=versions)
    _made[model][weights] = made
    return made


def _compile(model: nn.Module, weights: str) -> tuple[CompiledStep | None, str]:
    try:
        with torch.inference_mode(False):
            program = compile_step(model, weights)
    except CannotCompile as problem:
        if isinstance(problem, NoCompiler) and str(problem) not in _warned:
            _warned.add(str(problem))
            warnings.warn(f"steps are taken by torch, more slowly: {problem}", stacklevel=2)
        return None, str(problem)
    rounded = weights != "int8" or any(weight.format == "int8" for weight in program.lowered.weights)
    return program, f"{vectors()}, {weights if rounded else 'fp32: no matrix is large enough for int8'}"
