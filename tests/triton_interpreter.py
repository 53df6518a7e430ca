"""Triton kernels without a GPU: run by Triton's interpreter in the process of the test. Imported by conftest.py."""

import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def patch_for_numpy(interpreter: Any) -> None:
    """The interpreter stores scalars as arrays of one element, which NumPy 2.4 no longer converts to integers."""
    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patched


def patch_for_speed(interpreter: Any, core: Any) -> None:
    """The interpreter searches Triton's language for what to replace at every call of a device function, and describes
    the shape of every value anew. Here it searches once in a launch, and describes a shape once: a third faster."""
    replace, launch, describe = interpreter._patch_lang, interpreter.GridExecutor.__call__, core._type_for_tuple_values
    replaced: set[str] = set()  # modules of the language, in the current launch
    described: dict[tuple[int, ...], Any] = {}

    def replace_once(function: Any) -> Any:
        found = [value.__name__ for value in function.__globals__.values() if isinstance(value, ModuleType)]
        names = {name for name in found if name in ("triton.language", "triton.language.core")}
        if names <= replaced:
            return interpreter._LangPatchScope()
        replaced.update(names)
        return replace(function)

    def launch_afresh(self: Any, *arguments: Any, **options: Any) -> Any:
        replaced.clear()
        try:
            return launch(self, *arguments, **options)
        finally:
            replaced.clear()

    def describe_once(values: Any, fields: Any = None) -> Any:
        sizes = tuple(value.value if isinstance(value, core.constexpr) else value for value in values)
        if fields is not None or not all(type(size) is int for size in sizes):
            return describe(values, fields)
        if sizes not in described:
            described[sizes] = describe(values)
        return described[sizes]

    interpreter._patch_lang, core._type_for_tuple_values = replace_once, describe_once
    interpreter.GridExecutor.__call__ = launch_afresh


try:
    if os.environ.get("ELMAN_SHAPES") == "1":
        raise ImportError("Triton reads the source of kernels, which checks of shapes change")
    # A kernel is decorated either for the interpreter or for the compiler; Triton's own library when it is imported.
    with pytest.MonkeyPatch.context() as context:
        if DEVICE == "cpu":
            context.setenv("TRITON_INTERPRET", "1")
        import triton.experimental.gluon
        import triton.language
        from triton.runtime import interpreter

        import elman.ops.norms.layer_norm_kernels
        import elman.ops.scan.lookback
        import elman.ops.selective.fused
        import elman.ops.short_convolution.fused
        import elman.ops.softmax_gradient_kernel  # noqa: F401
    patch_for_numpy(interpreter)
    patch_for_speed(interpreter, triton.language.core)
    HAS_TRITON = True
except ImportError:
    HAS_TRITON = False


@pytest.fixture
def triton_interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels run: those generated in this test are interpreted too where there is no GPU."""
    if not HAS_TRITON:
        pytest.skip("kernels are written in Triton")
    if DEVICE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    yield
    if DEVICE == "cpu":
        for name in [name for name in sys.modules if name.startswith("recurrence_")]:
            del sys.modules[name]
