"""Shapes as types: annotations of operations, cells, layers and models are true, and wrong shapes are refused."""

import json
import sys
from pathlib import Path

import pytest
from processes import environment, run_python

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "laws"))

from law_cases import cases  # noqa: E402
from test_model_laws import MODELS  # noqa: E402

# Seen to fail while one axis name stood for the width of input and output, and matrices were taken for vectors.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("shapes")]  # one process checks all cases


@pytest.fixture(scope="module")
def problems() -> dict[str, str]:
    done = run_python(str(HERE / "shape_checked_laws.py"), env=environment(HERE))
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", ["refusal", *map(str, cases()), *map(str, MODELS)])
def test_shapes_and_types_are_as_annotated(case: str, problems: dict[str, str]) -> None:
    assert not problems[case]
