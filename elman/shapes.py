"""Tensor shapes as types: batch, time, width. Checked in tests only.

`batch` and `time` must agree among all arguments and results of a call; widths may differ.
"""

from typing import Any, TypeAlias

from jaxtyping import Float, Int
from torch import Tensor

Sequence: TypeAlias = Float[Tensor, "batch time _width"]
Step: TypeAlias = Float[Tensor, "batch _width"]
Tokens: TypeAlias = Int[Tensor, "batch time"]
Token: TypeAlias = Int[Tensor, " batch"]  # the space keeps linters from reading a single axis as a name
Lengths: TypeAlias = Int[Tensor, " batch"]  # real positions of each row; the rest is right padding
State: TypeAlias = Any  # a tensor, or a (named) tuple of states; batch first
