"""Steps on a GPU as one captured graph: choosing a token and stepping with it, at addresses that never change.

Eager steps launch dozens of small kernels, and the GPU waits for the host at each token. Here the host draws the random
numbers of some steps ahead, starts these steps, and looks at tokens only after them; ends and stop texts are found
then, so the text is that of torch's own path. Without a GPU the same steps run one by one.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation.sampling import Begun, Chosen, GenerationConfig, Steps, broken, choose_at, random_stream
from elman.ops.cuda_graph import graph_of
from elman.ops.host_sync import find_host_sync, without_host_sync
from elman.ops.state import fixed, keep, map_state, tensors
from elman.shapes import State, Step, Tokens

CHUNK = 16  # tokens between two looks of the host: what a reader who stops may have asked for in vain
WARM = 3  # steps before capturing, in which libraries choose and allocate what they need
KEPT = 2  # graphs of one model: other numbers of texts, lengths and settings need others, and memory each
OURS = ("elman.", "torch.")  # layers from here are known not to wait: a test tries each

_free: WeakKeyDictionary[nn.Module, dict[Any, "Stepper"]] = WeakKeyDictionary()
_obstacles: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
_warned: set[str] = set()


def obstacle(model: Any, state: State | None = None) -> str:
    """Why no graph of the model's step can be made; nothing if one can. Without a state, the initial one is tried."""
    kind = device_of(model).type
    if kind not in ("cuda", "cpu"):
        return f"the model is on {kind}"
    if all(type(part).__module__.startswith(OURS) for part in model.modules()):
        return ""
    if model not in _obstacles:
        state = fixed(model.initial_state(2) if state is None else state, CHUNK)
        token = torch.zeros(len(next(tensors(state))[1]), dtype=torch.long, device=device_of(model))
        found = find_host_sync(model, lambda token, state: keep(state, model.step(token, state)[1]), token, state)
        _obstacles[model] = f"a step needs the host: {found}" if found else ""
    return _obstacles[model]


class Stepper:
    """What a step reads and writes, in memory of its own, and the graph of the step if there is one."""

    graph: Any = None

    def __init__(self, logits: Step, state: State, recent: Tokens | None):
        rows, device = len(logits), logits.device
        self.logits, self.state = logits.clone(), map_state(torch.clone, state)
        self.recent = None if recent is None else recent.clone()
        self.number = torch.zeros(1, dtype=torch.long, device=device)
        self.uniforms = torch.zeros(CHUNK, rows, dtype=torch.float64, device=device)
        self.told = torch.zeros(CHUNK, 3, rows, dtype=torch.float64, device=device)

    def load(self, logits: Step, state: State, recent: Tokens | None) -> None:
        self.logits.copy_(logits)
        keep(self.state, state)
        if self.recent is not None and recent is not None:
            self.recent.copy_(recent)

    def advance(self, model: Any, config: GenerationConfig, eos_id: int, start_id: int) -> None:
        """One token more for each row; `told` gets the token, its logit, and the total that makes it a probability."""
        with without_host_sync():
            logits = self.logits
            total = logits.float().logsumexp(dim=-1)
            token = choose_at(logits, config, self.uniforms.index_select(0, self.number).squeeze(0), self.recent)
            token = token.clamp(max=logits.shape[1] - 1)  # where logits are broken, it lies behind the last
            score = logits.gather(1, token.unsqueeze(1)).squeeze(1)
            self.told.index_copy_(0, self.number, torch.stack([token.double(), score.double(), total.double()])[None])
            if self.recent is not None:
                self.recent.copy_(torch.cat([self.recent[:, 1:], token.unsqueeze(1)], dim=1))
            new, state = model.step(torch.where(token == eos_id, start_id, token), self.state)
            # a broken row keeps its logits, so that it can be said what is wrong with them
            logits.copy_(torch.where(total.isfinite().unsqueeze(1), new, logits))
            keep(self.state, state)
            self.number.add_(1)

    def begin(self, step: Callable[[], None], uniforms: np.ndarray) -> None:
        """Start as many steps as there are numbers (steps, rows)."""
        self.number.zero_()
        self.uniforms[: len(uniforms)].copy_(torch.from_numpy(uniforms))
        for _ in uniforms:
            step()


def write_rows(model: nn.Module, begun: Begun) -> Steps:
    """By a graph of a step, or as for one."""
    logits, state, config, eos_id, start_id, _, recent, _ = begun
    with inference_mode(model):
        state = fixed(state, config.max_tokens)
        key = _key(model, logits, state, config, eos_id, start_id)
        stepper = _free.get(model, {}).pop(key, None) or Stepper(logits, state, recent)
        step: Callable[[], None] = partial(stepper.advance, model, config, eos_id, start_id)
        stepper.graph = stepper.graph or capture(step, logits.device)
        step = step if stepper.graph is None else stepper.graph.replay
        stepper.load(logits, state, recent)
    try:
        yield from _write(model, stepper, step, begun)
    finally:
        if stepper.graph is not None:
            _give_back(model, key, stepper)


def write_greedily(model: nn.Module, state: State, eos_id: int, limits: Sequence[int]) -> list[list[Chosen]]:
    """The most probable token again and again."""
    return write_limited(
        model, state, eos_id, limits, GenerationConfig(temperature=0), [random_stream(0, 0)] * len(limits)
    )


def write_limited(
    model: Any,
    state: State,
    eos_id: int,
    limits: Sequence[int],
    config: GenerationConfig,
    randoms: Sequence[np.random.Generator],
    write: Callable[[Any, Begun], Steps] = write_rows,
) -> list[list[Chosen]]:
    """Tokens from a state before the first, for each row up to its limit or end."""
    with inference_mode(model):
        first = torch.full((len(limits),), eos_id, device=device_of(model))
        logits, state = model.step(first, state)
    config = config.model_copy(update={"max_tokens": max(limits)})
    rows: list[list[Chosen]] = [[] for _ in limits]
    done: set[int] = set()
    for step in write(model, Begun(logits, state, config, eos_id, eos_id, randoms, None, done)):
        for row, choice in enumerate(step):
            if choice is not None:
                rows[row].append(choice)
                if len(rows[row]) == limits[row]:
                    done.add(row)
    return rows


def capture(step: Callable[[], None], device: torch.device) -> Any:
    """The CUDA graph of a step, after some steps that are only practice; none on a CPU, nor, with a warning, where that
    fails."""
    if device.type != "cuda":
        return None
    try:
        with torch.cuda.device(device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM):
                    step()
            torch.cuda.current_stream().wait_stream(side)
            return graph_of(step, side)
    except RuntimeError as problem:
        told = str(problem).strip().partition("\n")[0]
        if told not in _warned:
            _warned.add(told)
            warnings.warn(f"steps are taken one by one, more slowly: capturing them failed: {told}", stacklevel=2)
        return None


def _write(model: nn.Module, stepper: Stepper, step: Callable[[], None], begun: Begun) -> Steps:
    config, randoms = begun.config, begun.randoms

    def begin(steps: int) -> None:
        drawn = [random.random(steps) if config.temperature else np.zeros(steps) for random in randoms]
        stepper.begin(step, np.stack(drawn, axis=1))

    chunks = [min(CHUNK, config.max_tokens - start) for start in range(0, config.max_tokens, CHUNK)]
    going = list(range(len(randoms)))
    with inference_mode(model):
        begin(chunks[0])
    for steps, ahead in zip(chunks, [*chunks[1:], 0], strict=True):
        with inference_mode(model):
            found = stepper.told[:steps].tolist()  # here the host waits
            if ahead:
                begin(ahead)  # the device goes on while tokens become text
        for tokens, scores, totals in found:
            for row in going:
                if not math.isfinite(totals[row]):
                    raise broken(stepper.logits, row)
            chosen = {row: Chosen(int(tokens[row]), scores[row] - totals[row]) for row in going}
            yield [chosen.get(row) for row in range(len(randoms))]
            ended = {row for row in going if config.stop_at_end and chosen[row].token == begun.eos_id}
            going = [row for row in going if row not in begun.done and row not in ended]
            if not going:
                return


def _give_back(model: nn.Module, key: Any, stepper: Stepper) -> None:
    """Only now may another text have it."""
    if stepper.logits.is_cuda:
        torch.cuda.synchronize(stepper.logits.device)  # a reader who stopped has left steps under way
    free = _free.setdefault(model, {})
    free[key] = stepper
    for old in list(free)[:-KEPT]:
        del free[old]


def _key(
    model: nn.Module, logits: Tensor, state: State, config: GenerationConfig, eos_id: int, start_id: int
) -> tuple[Any, ...]:
    """What a graph was made for: sizes, settings, and where the weights are."""
    rules = (config.temperature, config.top_k, config.top_p, config.repetition_penalty, config.repetition_window)
    parts = [logits, *(part for _, part in tensors(state))]
    weights = [part.data_ptr() for part in (*model.parameters(), *model.buffers())]
    return (*rules, eos_id, start_id, *((part.shape, part.dtype) for part in parts), *weights)
