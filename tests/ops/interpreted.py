"""Triton's interpreter for tests of kernels on a machine without a GPU, with a patch for recent versions of NumPy."""

from typing import Any

import torch
from triton.runtime import interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
_patch: Any = interpreter._patch_lang_tensor


def _patch_for_numpy(tensor: Any, scope: Any) -> None:
    """The interpreter keeps scalars as arrays of one number, which NumPy 2.4 no longer takes for integers."""
    _patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())


interpreter._patch_lang_tensor = _patch_for_numpy
