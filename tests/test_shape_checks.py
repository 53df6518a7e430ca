"""Shapes as types are checked where tests ask for it: ELMAN_SHAPES=1 python -m pytest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from elman.layers import LAYERS

ROOT = Path(__file__).parent.parent
CHECKED = os.environ.get("ELMAN_SHAPES") == "1"


@pytest.mark.skipif(not CHECKED, reason="shapes are checked with ELMAN_SHAPES=1 only")
def test_wrong_shapes_and_kinds_are_refused() -> None:
    from jaxtyping import TypeCheckError

    layer = LAYERS["lstm"](LAYERS["lstm"].Config(hidden_size=4), 3)
    x, state = torch.zeros(2, 5, 3), layer.initial_state(2)
    assert layer(x)[0].shape == (2, 5, 4), "widths may differ"
    for wrong in (
        lambda: layer(x[:, 0]),
        lambda: layer.step(x, state),
        lambda: layer(x.long()),
        lambda: layer(x, state, torch.tensor([5, 5, 5])),
        lambda: layer(x, state, torch.tensor([5.0, 5.0])),
    ):
        with pytest.raises(TypeCheckError):
            wrong()


@pytest.mark.slow
@pytest.mark.skipif(CHECKED, reason="this run checks shapes already")
def test_the_laws_hold_with_shapes_checked() -> None:
    """Seen to fail while one axis name stood for the width of input and output, and matrices were taken for vectors."""
    files = ["tests/test_shape_checks.py", "tests/laws/test_layer_laws.py", "tests/laws/test_model_laws.py"]
    some = "wrong_shapes or agreement"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", some]
    environment = {**os.environ, "ELMAN_SHAPES": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
