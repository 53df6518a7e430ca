"""Small kernels against their references: on a GPU, or interpreted in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("ELMAN_SHAPES") == "1", reason="Triton reads the source of kernels")
@pytest.mark.parametrize(
    "laws",
    [f"{name}_kernel_laws.py" for name in ("scan", "selective", "short_convolution", "softmax_errors", "layer_norm")],
)
def test_small_kernels_equal_their_references(laws: str) -> None:
    """Triton decides when it is imported whether it interprets, and others may have imported it here already."""
    pytest.importorskip("triton")
    interpreting = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "pytest", str(HERE / laws), "-x", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, **interpreting, "PYTHONPATH": str(HERE.parents[1])}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-4000:]
    assert "passed" in found.stdout
