"""Shapes as types: batch first, then time, then width. Tests check them; at run time they are only names."""

from typing import Any, TypeAlias

from jaxtyping import Float, Int
from torch import Tensor

Sequence: TypeAlias = Float[Tensor, "batch time width"]
Step: TypeAlias = Float[Tensor, "batch width"]
Tokens: TypeAlias = Int[Tensor, "batch time"]
Token: TypeAlias = Int[Tensor, "batch"]
Lengths: TypeAlias = Int[Tensor, "batch"]  # real positions of each row; the rest is right padding
State: TypeAlias = Any  # a tensor, or a (named) tuple of states; batch first
