"""Kernels in Triton on a machine without a GPU: import this first, and they are interpreted on the CPU, slowly."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest
import torch

if os.environ.get("ELMAN_SHAPES") == "1":
    pytest.skip("Triton reads the source of kernels, which checks would wrap", allow_module_level=True)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@contextmanager
def _asking() -> Iterator[None]:
    """Triton reads it when it is imported, when a kernel is defined and when it runs; other tests mean it unset."""
    with pytest.MonkeyPatch.context() as patch:
        if DEVICE == "cpu":
            patch.setenv("TRITON_INTERPRET", "1")
        yield


@pytest.fixture(autouse=True, scope="module")
def interpreting() -> Iterator[None]:
    """For modules that import it: all their tests."""
    with _asking():
        yield


interpreter: Any = None
with _asking():
    interpreter = pytest.importorskip("triton.runtime.interpreter", reason="kernels are written in Triton")
    for kernels in ("elman.ops.scan.walks", "elman.ops.selective.fused"):
        import_module(kernels)

_patch = interpreter._patch_lang_tensor


def _patch_for_numpy(tensor: Any, scope: Any) -> None:
    """The interpreter keeps scalars as arrays of one number, which NumPy 2.4 no longer takes for integers."""
    _patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())


interpreter._patch_lang_tensor = _patch_for_numpy
