"""Two directions of a recurrence in one launch: in Triton's interpreter, compiled for a GPU, and on one if there is."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from both_ways_laws import compare
from unit_cases import CASES, cell_of

from elman.compiler.triton.partition import partition
from elman.recurrence import apart, compiled_triton, explain_both, using

HERE = Path(__file__).parent


@pytest.mark.slow
def test_one_launch_equals_two_runs_in_the_interpreter(tmp_path: Path) -> None:
    """In a process of its own: Triton decides when it is imported whether it interprets."""
    pytest.importorskip("triton")
    cached = {"XDG_CACHE_HOME": str(tmp_path), "TRITON_INTERPRET": "1", "PYTHONPATH": f"{HERE.parents[1]}"}
    laws = [str(HERE / "both_ways_laws.py"), "-x", "-q", "-p", "no:cacheprovider", "--show-capture=no"]
    command = [sys.executable, "-m", "pytest", *laws]
    found = subprocess.run(command, env={**os.environ, **cached}, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-4000:]
    assert "passed" in found.stdout
    assert "skipped" not in found.stdout


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="kernels are written in Triton")
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_both_ways_compile_for_a_gpu_and_read_as_wide_as_one(direction: str, tmp_path: Path) -> None:
    """What the interpreter forgives. Four numbers are fetched at once only if the compiler knows all are aligned."""
    cached = {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": f"{HERE.parents[1]}:{HERE}"}
    own = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", PROGRAM, direction]
    done = subprocess.run(command, env={**own, **cached}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    one, both = done.stdout.splitlines()
    assert "v4" in one
    assert one == both


PROGRAM = """
import re, sys
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from unit_cases import cell_of
from elman.recurrence import compiled_triton
from elman.compiler.triton.launcher import Kernel
from elman.compiler.triton.partition import Partition

FLOATS, INTEGERS, PLAIN = ("final", "sums", "partials"), ("counters", "alarm", "lengths"), ("T", "B", "limit")

def kind_of(name):
    if name in PLAIN or name.endswith(("_r", "_t", "_p", "_w")):
        return "i32"
    if name in INTEGERS:
        return "*i32"
    return "*fp32" if name in FLOATS or name.startswith("initial") else "*bf16"

made = compiled_triton.plan(cell_of("lstm", hidden_size=64))
program = made.program(sys.argv[1])
for both in (False, True):
    part = Partition(16, 16, split=4, chunk=64)
    function = Kernel(program, program.given, part, torch.bfloat16, False, "tf32", both).run
    types = {name: kind_of(name) for name in function.arg_names}
    whole = {(place,): [["tt.divisibility", 16]] for place, name in enumerate(types) if name not in PLAIN}
    options = {"num_warps": 4, "num_stages": 1}
    done = triton.compile(ASTSource(function, types, {}, whole), target=GPUTarget("cuda", 90, 32), options=options)
    assert done.asm["cubin"]
    print(sorted(set(re.findall(r"ld\\.global\\S*", done.asm["ptx"]))))
"""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_on_a_gpu_one_launch_equals_two_runs(case) -> None:
    with torch.device("cuda"):
        compare(case, 7, 9, 100, tolerance=2e-4)
        compare(case, 3, 9, 40, [9, 0, 4], tolerance=2e-4)


def test_elsewhere_directions_run_one_after_the_other() -> None:
    x = torch.zeros(2, 8, 3)
    cells = cell_of("lstm"), cell_of("lstm")
    assert apart(*cells, x) == "the vendor form has no kernel for both directions"
    assert explain_both(*cells, x) == "vendor: oneDNN LSTM"
    with using("reference"):
        assert explain_both(*cells, x) == "reference: the plain loop, as asked"
    other = cell_of("gru", {"reset": "before"})
    told = explain_both(cells[0], other, x)
    assert told.startswith("vendor: oneDNN LSTM; back reference: ")


def test_two_ways_share_the_processors_and_a_division_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    chip = SimpleNamespace(multi_processor_count=132, shared_memory_per_block_optin=100 * 1024, major=8)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: chip)
    asked = []

    def counted(program, batch, itemsize, processors, shared, clusters):
        asked.append(processors)
        assert not clusters  # Ampere has none
        found = partition(program, batch, itemsize, processors, shared, clusters)
        assert found.shared(program, itemsize) <= shared < 100 * 1024
        return found

    monkeypatch.setattr(compiled_triton.partition, "partition", counted)
    made = compiled_triton.plan(cell_of("lstm", hidden_size=256))
    for ways in (1, 2, 1, 2):
        division = made.division("forward", 64, torch.bfloat16, torch.device("cuda", 0), ways)
        assert ways * division.groups(64) * division.programs(256) <= 132
    assert asked == [132, 66]
