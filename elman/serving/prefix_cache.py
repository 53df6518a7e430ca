"""States after common beginnings of prompts, so that each is computed once."""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from elman.ops.state import leaves
from elman.serving.generation import EVERY
from elman.shapes import State

SHARE = 16  # a state may take this fraction (1/16) of the budget


class PrefixCache:
    """The least recently used states are dropped beyond a budget in bytes. Owners do not share: the time of an answer
    would tell what others have sent."""

    def __init__(self, budget: int):
        self.budget, self.used = budget, 0
        self._states: OrderedDict[bytes, tuple[State, int]] = OrderedDict()

    def longest(self, owner: str, tokens: Sequence[int]) -> tuple[State | None, int]:
        """The state after the longest known beginning, shorter than all tokens, and its length."""
        if not self._states:
            return None, 0
        for length, key in reversed([*_keys(owner, tokens)]):
            if key in self._states:
                self._states.move_to_end(key)
                return self._states[key][0], length
        return None, 0

    def keeps(self, tokens: Sequence[int], length: int) -> bool:
        """Whether the state after this many tokens of a prompt is worth keeping."""
        return 1 < length < len(tokens) and (length % EVERY == 0 or length == len(tokens) - 1)

    def put(self, owner: str, tokens: Sequence[int], length: int, state: State) -> None:
        size = sum(part.nbytes for part in leaves(state)) + 200
        if size > self.budget // SHARE:
            return
        key = next(key for at, key in _keys(owner, tokens) if at == length)
        _, before = self._states.pop(key, (None, 0))
        self._states[key] = state, size
        self.used += size - before
        while self.used > self.budget:
            _, (_, freed) = self._states.popitem(last=False)
            self.used -= freed


def _keys(owner: str, tokens: Sequence[int]) -> list[tuple[int, bytes]]:
    """The lengths at which states of this prompt are kept, with their keys."""
    ids = np.asarray(tokens, dtype=np.int64)
    hashed, keys = blake2b(owner.encode(), digest_size=16), []
    for start in range(0, len(ids), EVERY):
        end = min(start + EVERY, len(ids) - 1)
        hashed.update(ids[start:end].tobytes())
        if end > 1:
            keys.append((end, hashed.copy().digest()))
    return keys
