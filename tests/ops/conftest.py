"""Triton without a GPU: kernels run in its interpreter, in this process."""

import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch

INTERPRETED = find_spec("triton") is not None and not torch.cuda.is_available()

# Triton decides when a kernel is decorated whether to interpret it; its own library is decorated when it is imported.
if INTERPRETED:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")

        import elman.ops.layer_norm.fused
        import elman.ops.scan.lookback
        import elman.ops.selective.fused
        import elman.ops.short_convolution.fused
        import elman.ops.softmax_gradient_kernel  # noqa: F401
    import interpreted  # noqa: F401


@pytest.fixture
def triton_interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels that are generated in this test are interpreted too, where there is no GPU."""
    if INTERPRETED:
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    yield
    for name in [name for name in sys.modules if name.startswith("recurrence_")]:
        del sys.modules[name]
