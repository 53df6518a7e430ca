"""Generation steps as CUDA graphs: sampling a token and stepping the model in one launch.

Eager steps launch dozens of small kernels, and the GPU waits for the host at each token. Here the host draws the random
numbers of CHUNK steps ahead, launches these steps, and reads their tokens afterwards; it finds end-of-sequence and stop
strings then, so the text equals that of the eager path. Without a GPU the same steps run one by one.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from elman.errors import first_line
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation.sampling import (
    DecodingInputs,
    GenerationConfig,
    SampledToken,
    Steps,
    count_tokens,
    invalid_logits,
    new_counts,
    random_stream,
    tokens_at_uniforms,
)
from elman.ops.host_sync import find_host_sync, graph_of, warn_of_eager_steps, without_host_sync
from elman.ops.state import fixed, keep, map_state, tensors
from elman.shapes import State, Step, Tokens

CHUNK = 16  # tokens between two host reads: the most that are computed in vain after a stop
WARMUP_STEPS = 3  # eager steps before capture: libraries select kernels and allocate workspaces
CACHED_GRAPHS = 2  # per model: each number of rows, length and setting needs its own graph and memory
GREEDY = GenerationConfig(temperature=0)
NOT_CAPTURED = {"max_tokens", "seed", "stop", "unknown", "stop_at_end", "engine", "weights"}  # settings of no graph
KNOWN_SYNC_FREE = ("elman.", "torch.")  # modules whose layers never synchronize with the host (tested for each)

_idle: WeakKeyDictionary[nn.Module, dict[Any, "Stepper"]] = WeakKeyDictionary()
_obstacles: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()


def obstacle(model: Any, state: State | None = None) -> str:
    """The reason why no graph of the model's step can be captured, or an empty string. Default: the initial state."""
    kind = device_of(model).type
    if kind not in ("cuda", "cpu"):
        return f"the model is on {kind}"
    if getattr(model, "fits_by_counting", False):
        return "a step of an n-gram model searches its tables, which needs the host"
    if all(type(part).__module__.startswith(KNOWN_SYNC_FREE) for part in model.modules()):
        return ""
    if model not in _obstacles:
        state = fixed(model.initial_state(2) if state is None else state, CHUNK)
        token = torch.zeros(len(next(tensors(state))[1]), dtype=torch.long, device=device_of(model))
        found = find_host_sync(model, lambda token, state: keep(state, model.step(token, state)[1]), token, state)
        _obstacles[model] = f"a step needs the host: {found}" if found else ""
    return _obstacles[model]


class Stepper:
    """Static buffers of a step, and its CUDA graph if there is one."""

    graph: Any = None

    def __init__(self, logits: Step, state: State, recent: Tokens | None, counts: Tensor | None):
        rows, device = len(logits), logits.device
        self.logits, self.state = logits.clone(), map_state(torch.clone, state)
        self.recent = None if recent is None else recent.clone()
        self.counts = counts
        self.number = torch.zeros(1, dtype=torch.long, device=device)
        self.uniforms = torch.zeros(CHUNK, rows, dtype=torch.float64, device=device)
        self.outputs = torch.zeros(CHUNK, 3, rows, dtype=torch.float64, device=device)

    def load(self, logits: Step, state: State, recent: Tokens | None) -> None:
        self.logits.copy_(logits)
        keep(self.state, state)
        if self.recent is not None and recent is not None:
            self.recent.copy_(recent)
        if self.counts is not None:
            self.counts.zero_()

    def advance(self, model: Any, config: GenerationConfig, eos_id: int, start_id: int, excluded: int | None) -> None:
        """One token per row; `outputs` gets the token, its logit, and the log-sum-exp of all logits."""
        with without_host_sync():
            logits = self.logits
            total = logits.float().logsumexp(dim=-1)
            uniforms = self.uniforms.index_select(0, self.number).squeeze(0)
            token = tokens_at_uniforms(logits, config, uniforms, self.recent, excluded, self.counts)
            token = token.clamp(max=logits.shape[1] - 1)  # invalid logits give an index past the end
            score = logits.gather(1, token.unsqueeze(1)).squeeze(1)
            output = torch.stack([token.double(), score.double(), total.double()])
            self.outputs.index_copy_(0, self.number, output.unsqueeze(0))
            if self.recent is not None:
                self.recent.copy_(torch.cat([self.recent[:, 1:], token.unsqueeze(1)], dim=1))
            if self.counts is not None:
                self.counts.copy_(count_tokens(self.counts, token))
            new, state = model.step(torch.where(token == eos_id, start_id, token), self.state)
            # rows with invalid logits keep them for the error message
            logits.copy_(torch.where(total.isfinite().unsqueeze(1), new, logits))
            keep(self.state, state)
            self.number.add_(1)

    def begin(self, step: Callable[[], None], uniforms: np.ndarray) -> None:
        """Launch one step for each row of uniform random numbers (steps, rows)."""
        self.number.zero_()
        self.uniforms[: len(uniforms)].copy_(torch.from_numpy(uniforms))
        for _ in uniforms:
            step()


def generate_rows(model: nn.Module, inputs: DecodingInputs) -> Steps:
    """Generates with a CUDA graph, or with the same steps run eagerly."""
    logits, state, config, eos_id, start_id, _, recent, _, excluded = inputs
    with inference_mode(model):
        state = fixed(state, config.max_tokens)
        marks = eos_id, start_id, excluded
        key = _key(model, logits, state, config, marks)
        stepper = _idle.get(model, {}).pop(key, None) or Stepper(logits, state, recent, new_counts(logits, config))
        step: Callable[[], None] = partial(stepper.advance, model, config, *marks)
        stepper.graph = stepper.graph or capture(step, logits.device)
        step = step if stepper.graph is None else stepper.graph.replay
        stepper.load(logits, state, recent)
    try:
        yield from _generate(model, stepper, step, inputs)
    finally:
        if stepper.graph is not None:
            _release(model, key, stepper)


def generate_within_limits(
    model: Any,
    state: State,
    eos_id: int,
    limits: Sequence[int],
    config: GenerationConfig = GREEDY,
    generators: Sequence[np.random.Generator] = (),
    write: Callable[[Any, DecodingInputs], Steps] = generate_rows,
) -> list[list[SampledToken]]:
    """Generates from an initial state, each row up to its limit or end-of-sequence. Sampling needs `generators`."""
    generators = generators or [random_stream(0, 0)] * len(limits)
    with inference_mode(model):
        first = torch.full((len(limits),), eos_id, device=device_of(model))
        logits, state = model.step(first, state)
    config = config.model_copy(update={"max_tokens": max(limits)})
    rows: list[list[SampledToken]] = [[] for _ in limits]
    done: set[int] = set()
    for step in write(model, DecodingInputs(logits, state, config, eos_id, eos_id, generators, None, done)):
        for row, choice in enumerate(step):
            if choice is not None:
                rows[row].append(choice)
                if len(rows[row]) == limits[row]:
                    done.add(row)
    return rows


def capture(step: Callable[[], None], device: torch.device, pool: Any = None) -> Any:
    """The CUDA graph of a step, captured after warm-up steps; None on a CPU or, with a warning, if capture fails."""
    if device.type != "cuda":
        return None
    try:
        with torch.cuda.device(device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARMUP_STEPS):
                    step()
            torch.cuda.current_stream().wait_stream(side)
            return graph_of(step, side, pool)
    except RuntimeError as problem:
        warn_of_eager_steps("generation runs", f"capture failed: {first_line(problem)}")
        return None


def _generate(model: nn.Module, stepper: Stepper, step: Callable[[], None], inputs: DecodingInputs) -> Steps:
    config, generators = inputs.config, inputs.generators

    def begin(steps: int) -> None:
        drawn = [random.random(steps) if config.temperature else np.zeros(steps) for random in generators]
        stepper.begin(step, np.stack(drawn, axis=1))

    chunks = [min(CHUNK, config.max_tokens - start) for start in range(0, config.max_tokens, CHUNK)]
    unfinished = list(range(len(generators)))
    with inference_mode(model):
        begin(chunks[0])
    for steps, ahead in zip(chunks, [*chunks[1:], 0], strict=True):
        with inference_mode(model):
            found = stepper.outputs[:steps].tolist()  # synchronizes with the device
            if ahead:
                begin(ahead)  # the device computes while the host detokenizes
        for tokens, scores, totals in found:
            for row in unfinished:
                if not math.isfinite(totals[row]):
                    raise invalid_logits(stepper.logits, row)
            chosen = {row: SampledToken(int(tokens[row]), scores[row] - totals[row]) for row in unfinished}
            yield [chosen.get(row) for row in range(len(generators))]
            ended = {row for row in unfinished if config.stop_at_end and chosen[row].token == inputs.eos_id}
            unfinished = [row for row in unfinished if row not in inputs.done and row not in ended]
            if not unfinished:
                return


def _release(model: nn.Module, key: Any, stepper: Stepper) -> None:
    """Return the stepper to the cache for the next generation."""
    if stepper.logits.is_cuda:
        torch.cuda.synchronize(stepper.logits.device)  # steps may still run if the consumer stopped early
    free = _idle.setdefault(model, {})
    free[key] = stepper
    for old in list(free)[:-CACHED_GRAPHS]:
        del free[old]


def _key(
    model: nn.Module, logits: Tensor, state: State, config: GenerationConfig, marks: tuple[int | None, ...]
) -> tuple[Any, ...]:
    """Cache key of a graph: shapes, sampling settings, and the addresses of the weights."""
    rules = config.model_dump_json(exclude=NOT_CAPTURED)
    parts = [logits, *(part for _, part in tensors(state))]
    weights = [part.data_ptr() for part in (*model.parameters(), *model.buffers())]
    return (rules, *marks, *((part.shape, part.dtype) for part in parts), *weights)
