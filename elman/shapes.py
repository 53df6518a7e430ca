"""Shapes as types: batch first, then time, then width. Tests check them; at run time they are only names.

`batch` and `time` must agree among all arguments and results of a call; widths, which layers change, are free.
"""

from typing import Any, TypeAlias

from jaxtyping import Float, Int
from torch import Tensor

Sequence: TypeAlias = Float[Tensor, "batch time _width"]
Step: TypeAlias = Float[Tensor, "batch _width"]
Tokens: TypeAlias = Int[Tensor, "batch time"]
Token: TypeAlias = Int[Tensor, " batch"]  # a single axis begins with a space, or linters take it for a name
Lengths: TypeAlias = Int[Tensor, " batch"]  # real positions of each row; the rest is right padding
State: TypeAlias = Any  # a tensor, or a (named) tuple of states; batch first
