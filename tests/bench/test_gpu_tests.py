"""The record of the tests that use a GPU."""

import json

from processes import ROOT, run_forked

TESTS = """
import pytest

def test_right():
    pass

def test_wrong():
    assert False

@pytest.fixture
def broken():
    raise ValueError

def test_that_does_not_begin(broken):
    pass

@pytest.mark.skip(reason="needs a GPU")
def test_left_out():
    pass
"""


def test_failures_and_reasons_to_skip_are_counted(tmp_path):
    (tmp_path / "test_four.py").write_text(TESTS)
    done = run_forked("-m", "benchmarks.gpu_tests", str(tmp_path / "test_four.py"), "--to", str(tmp_path), cwd=ROOT)
    assert done.returncode == 1, done.stderr
    (path,) = tmp_path.glob("*-tests-*.json")
    found = json.loads(path.read_text())["results"]
    assert (found["passed"], found["failed"], found["skipped"]) == (1, 2, 1)
    assert found["reasons"] == {"needs a GPU": 1}
    assert [name.partition("::")[2] for name in found["failures"]] == ["test_wrong", "test_that_does_not_begin"]
