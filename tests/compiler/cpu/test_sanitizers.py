"""Generated C++ under sanitizers, in processes of their own: a short form of `python -m benchmarks.attack.sanitizers`,
which runs all laws of the native engines so.

Here it is compiled with -O1, as sanitizers advise: they check every access of the source at any level, and the compiler
takes a third of the time. The campaign compiles with -O3, as users do.
"""

import sys

import pytest
from processes import ROOT, run_python

sys.path.insert(0, str(ROOT))  # benchmarks are beside the package

from benchmarks.attack.sanitizers import environment

VARIABLES = environment()
THREADS = environment("thread")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(VARIABLES is None, reason="needs GCC with its sanitizers"),
    pytest.mark.xdist_group("sanitizers"),  # one process runs all programs
]
BEGIN = """
import sys
sys.path[:0] = ['tests/models/ngram', 'tests/laws', 'tests']
from elman.compiler.cpu import build
build.FLAGS.append("-O1")
"""
STEPS = """
from test_native_laws import assert_steps_agree, model_of
assert_steps_agree(model_of("lstm", {}))
assert_steps_agree(model_of("attention", {"num_heads": 3, "positions": "rotary", "context": 4}))
"""
ROWS = """
from test_row_laws import assert_company_changes_nothing, compiled, model_of
for weights in ("fp32", "int8"):
    for settings in ({"hidden_size": 40}, {"hidden_size": 144}):
        model = model_of("lstm", {}, **settings)
        assert_company_changes_nothing(compiled(model, weights), model.initial_state(1), 2, seed=1)
model = model_of("attention", {"num_heads": 3, "context": 4})
assert_company_changes_nothing(compiled(model, "fp32"), model.initial_state(1), 2, seed=2)
"""
TABLES = """
import torch
from test_ngram_tables import HOSTILE, MODEL, VOCABULARY, hostile
from elman.compiler.cpu.step import Runner, compile_step
from elman.models.ngram import NGram

NGram.check = lambda self: None
for case in HOSTILE:
    name = HOSTILE[case][0]
    wrong = hostile(case)[name].to(MODEL.state_dict()[name].dtype)
    if wrong.shape == MODEL.state_dict()[name].shape:  # what its size does not betray
        model = NGram(MODEL.config, VOCABULARY)
        model.load_state_dict({**MODEL.state_dict(), name: wrong})
        runner = Runner(compile_step(model), [model.initial_state(1)])
        for token in (*range(VOCABULARY), VOCABULARY, -5, 2**62):
            runner.step(torch.tensor([token]))
"""
# The address of a frame is only sure to be a multiple of 16: all that there are, of 64
SAMPLING = """
import ctypes, torch
from elman.compiler.cpu.build import RUNTIME_HEADS, library
top = library('''
extern "C" float top_from(const float* values, long size, long shift) {
    ((volatile char*)__builtin_alloca(shift))[0] = 0;
    float (*volatile call)(const float*, int64_t) = top_of;
    return call(values, size);
}''', *RUNTIME_HEADS).top_from
top.restype = ctypes.c_float
values = torch.arange(100.0)
for shift in (16, 32, 48, 64):
    assert top(ctypes.c_void_p(values.data_ptr()), ctypes.c_long(100), ctypes.c_long(shift)) == 99
"""
OVERFLOW = """
import ctypes, torch
from elman.compiler.cpu.build import library
values = torch.zeros(64)
library('extern "C" void beside(float* values, long place) { values[place] = 1; }').beside(
    ctypes.c_void_p(values.data_ptr()), ctypes.c_long(64))
"""
RACE = """
import ctypes, torch
from concurrent.futures import ThreadPoolExecutor
from elman.compiler.cpu.build import library
add = library('extern "C" void add(volatile float* sum) { for (int n = 0; n < 3000000; ++n) *sum += 1; }').add
place = torch.zeros(1)
with ThreadPoolExecutor(2) as pool:
    list(pool.map(add, [ctypes.c_void_p(place.data_ptr())] * 2))
"""
PROGRAMS = {"steps": STEPS, "rows": ROWS, "unchecked tables of n-grams": TABLES, "sampling": SAMPLING}


def run(code: str, variables=VARIABLES):
    return run_python("-c", BEGIN + code, cwd=ROOT, env={**variables, "PYTHONPATH": str(ROOT)})


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """All programs, one after another in one process: what was said of each that began, which is nothing if it ended
    well."""
    ended = run("".join(f"print({name!r}, flush=True)\n{code}" for name, code in PROGRAMS.items()))
    begun = dict.fromkeys(ended.stdout.splitlines(), "")
    return begun | ({[*begun][-1]: ended.stderr[-3000:]} if ended.returncode else {})


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_code_stays_inside_its_arrays(name, outcomes):
    """Catches: a log-probability written to where a key says, though the keys are not sorted; references to vectors,
    which claim more alignment than these have."""
    assert name in outcomes, f"not run: {outcomes}"
    assert not outcomes[name]


def test_a_write_beside_an_array_is_found():
    """Else the test above could not fail."""
    ended = run(OVERFLOW)
    assert ended.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in ended.stderr


@pytest.mark.skipif(THREADS is None, reason="needs GCC with its sanitizers")
def test_a_race_between_threads_is_found():
    """Else the campaign could not fail."""
    ended = run(RACE, THREADS)
    assert ended.returncode != 0
    assert "ThreadSanitizer: data race" in ended.stderr
