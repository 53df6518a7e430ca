"""Generated kernels compiled for a Hopper GPU, and on a GPU if there is one."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from cell_cases import CASES
from cell_equivalence import compare
from processes import environment, run_python
from test_interpreted_bidirectional_kernels import compare as compare_bidirectional

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="kernels are written in Triton")


@pytest.mark.slow
def test_kernels_compiled_for_a_gpu_use_its_memories_as_intended() -> None:
    """In a process of its own: in this one, Triton's library is loaded for the interpreter."""
    command = ["-m", "pytest", str(HERE / "compiled_kernel_laws.py"), "-x", "-q", "-p", "no:cacheprovider"]
    found = run_python(*command, "--noconftest", env=environment(HERE.parents[1]))
    assert found.returncode == 0, found.stdout[-4000:]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_on_a_gpu_kernels_equal_the_reference(case) -> None:
    with torch.device("cuda"):
        compare(case, 7, 9, 100, tolerance=2e-4)
        compare(case, 3, 9, 40, [9, 0, 4], tolerance=2e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_on_a_gpu_a_bidirectional_launch_equals_two_runs(case) -> None:
    with torch.device("cuda"):
        compare_bidirectional(case, 7, 9, 100, tolerance=2e-4)
        compare_bidirectional(case, 3, 9, 40, [9, 0, 4], tolerance=2e-4)
