"""Steps on a GPU as one captured graph: choosing a token and stepping with it, at addresses that never change.

Eager steps launch dozens of small kernels, and the GPU waits for the host at each token. Here the host draws the random
numbers of some steps ahead, starts these steps, and looks at tokens only after them; ends and stop texts are found
then, so the text is that of torch's own path. Without a GPU the same steps run uncaptured.
"""

import math
import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from elman.evaluation.still import device_of, still
from elman.generation.choose import Chosen, GenerationConfig, broken, choose_at
from elman.ops.state import fixed, tensors
from elman.ops.waiting import what_waits, without_waiting
from elman.shapes import State, Step, Token, Tokens

CHUNK = 16  # tokens between two looks of the host: what a reader who stops may have asked for in vain
WARM = 3  # steps before capturing, in which libraries choose and allocate what they need
KEPT = 4  # graphs of one model: other numbers of texts, lengths and settings need others
OURS = ("elman.", "torch.")  # layers from here are known not to wait: tests see to that

Key = tuple[Any, ...]

_free: WeakKeyDictionary[nn.Module, dict[Key, "Stepper"]] = WeakKeyDictionary()
_reasons: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()


def obstacle(model: nn.Module) -> str:
    """Why no graph of the model's step can be made; nothing if one can."""
    kind = device_of(model).type
    if kind not in ("cuda", "cpu"):
        return f"the model is on {kind}"
    if all(type(part).__module__.startswith(OURS) for part in model.modules()):
        return ""
    if model not in _reasons:
        state = fixed(model.initial_state(2), CHUNK)
        token = torch.zeros(2, dtype=torch.long, device=device_of(model))
        found = what_waits(model, lambda token, state: keep(state, model.step(token, state)[1]), token, state)
        _reasons[model] = f"a step needs the host: {found}" if found else ""
    return _reasons[model]


def title(model: nn.Module) -> str:
    kind = device_of(model).type
    return "a CUDA graph of each step" if kind == "cuda" else f"steps as for a graph, but the model is on {kind}"


class Stepper:
    """What a step reads and writes, in memory of its own, and the way to take the step."""

    turn: Callable[[], None]

    def __init__(self, logits: Step, state: State, recent: Tokens | None):
        rows, device = len(logits), logits.device
        self.logits, self.state = logits.clone(), state
        self.recent = None if recent is None else recent.clone()
        self.number = torch.zeros(1, dtype=torch.long, device=device)
        self.uniforms = torch.zeros(CHUNK, rows, dtype=torch.float64, device=device)
        self.told = torch.zeros(CHUNK, 3, rows, dtype=torch.float64, device=device)  # token, its logit, total

    def advance(self, model: Any, config: GenerationConfig, eos_id: int, start_id: int) -> None:
        """One token more for each row. Nothing here may look at a value."""
        logits = self.logits
        uniforms = self.uniforms.index_select(0, self.number).squeeze(0)
        total = logits.float().logsumexp(dim=-1)
        token = choose_at(logits, config, uniforms, self.recent)
        token = token.clamp(max=logits.shape[1] - 1)  # behind the last where logits are broken
        score = logits.gather(1, token.unsqueeze(1)).squeeze(1)
        told = torch.stack([token.double(), score.double(), total.double()])
        self.told.index_copy_(0, self.number, told.unsqueeze(0))
        if self.recent is not None:
            self.recent.copy_(torch.cat([self.recent[:, 1:], token.unsqueeze(1)], dim=1))
        new, state = model.step(_given(token, eos_id, start_id), self.state)
        # broken rows keep their logits, so that it can be said what is wrong with them
        logits.copy_(torch.where(total.isfinite().unsqueeze(1), new, logits))
        keep(self.state, state)
        self.number.add_(1)

    def load(self, logits: Step, state: State, recent: Tokens | None) -> None:
        self.logits.copy_(logits)
        keep(self.state, state)
        if self.recent is not None and recent is not None:
            self.recent.copy_(recent)

    def begin(self, uniforms: Tensor) -> None:
        """Start as many steps as there are numbers (steps, rows)."""
        self.number.zero_()
        self.uniforms[: len(uniforms)].copy_(uniforms)
        for _ in range(len(uniforms)):
            self.turn()

    def look(self, steps: int) -> list[list[list[float]]]:
        """What these steps told; here the host waits."""
        return self.told[:steps].tolist()


def write_rows(
    model: nn.Module,
    logits: Step,
    state: State,
    config: GenerationConfig,
    eos_id: int,
    start_id: int,
    randoms: Sequence[np.random.Generator],
    recent: Tokens | None,
    done: Container[int],
) -> Iterator[list[Chosen | None]]:
    """One token for each row at a time, from logits and state after the prompts; None for rows that are over."""
    with still(model):
        state = fixed(state, config.max_tokens)
        key = _key(model, logits, state, config, eos_id, start_id)
        stepper = _free.get(model, {}).pop(key, None)
        if stepper is None:
            stepper = _made(model, logits, fixed(state, 0), recent, config, eos_id, start_id)
        stepper.load(logits, state, recent)
    try:
        yield from _write(model, stepper, config, eos_id, randoms, done)
    finally:
        if stepper.logits.is_cuda:  # else nothing took long to make, and the model would be kept alive
            free = _free.setdefault(model, {})
            free[key] = stepper
            for old in list(free)[:-KEPT]:
                del free[old]


def _write(
    model: nn.Module,
    stepper: Stepper,
    config: GenerationConfig,
    eos_id: int,
    randoms: Sequence[np.random.Generator],
    done: Container[int],
) -> Iterator[list[Chosen | None]]:
    def begin(steps: int) -> None:
        drawn = [random.random(steps) if config.temperature else np.zeros(steps) for random in randoms]
        stepper.begin(torch.from_numpy(np.stack(drawn, axis=1)))

    chunks = [min(CHUNK, config.max_tokens - start) for start in range(0, config.max_tokens, CHUNK)]
    going = list(range(len(randoms)))
    for steps, after in zip(chunks, [*chunks[1:], 0], strict=True):
        with still(model):
            if steps is chunks[0] and after is not None:
                pass
        yield from ()


def keep(old: State, new: State) -> None:
    """Put a new state where the old one is. Parts that are there already stay."""
    pairs = [(a, b) for (_, a), (_, b) in zip(tensors(old), tensors(new), strict=True) if a is not b]
    memory = {part.untyped_storage()._cdata for _, part in tensors(old)}
    for a, b in pairs:
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise ValueError(f"a part of the state changes from {tuple(a.shape)} {a.dtype} to {tuple(b.shape)} {b.dtype}")
    # what lies in the old state's memory may be written over before its turn comes
    pairs = [(a, b.clone() if b.untyped_storage()._cdata in memory else b) for a, b in pairs]
    for a, b in pairs:
        a.copy_(b)
