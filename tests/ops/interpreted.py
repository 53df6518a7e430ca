"""Kernels in Triton on a machine without a GPU: import this first, and they are interpreted on the CPU, slowly."""

import os
from typing import Any

import pytest
import torch

if os.environ.get("ELMAN_SHAPES") == "1":
    pytest.skip("Triton reads the source of kernels, which checks would wrap", allow_module_level=True)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
interpreter: Any = pytest.importorskip("triton.runtime.interpreter", reason="kernels are written in Triton")

_patch = interpreter._patch_lang_tensor


def _patch_for_numpy(tensor: Any, scope: Any) -> None:
    """The interpreter keeps scalars as arrays of one number, which NumPy 2.4 no longer takes for integers."""
    _patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())


interpreter._patch_lang_tensor = _patch_for_numpy
