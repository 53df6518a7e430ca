"""Run the laws of all compiled C++ under sanitizers: AddressSanitizer with UndefinedBehaviorSanitizer, ThreadSanitizer.

    python -m benchmarks.attack.sanitizers

That is every registered layer, cell and model that has machine code: generated steps and sequences, packing, matrix
products, sampling, n-gram tables. The rows of a batch are divided among three threads wherever threads are used at all.
The compiler gets the flags of the sanitizers by CXX, and Python their library by LD_PRELOAD, so that memory of torch
and numpy is guarded as well. Any access outside of an array, any undefined operation and any data race is a violation.
With --again those on record are tried again, and count as mended if they are none now.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.attack.campaign import Campaign, parser


class Sanitizer(NamedTuple):
    flags: str
    libraries: tuple[str, ...]
    options: dict[str, str]


# libstdc++ for exceptions, which the library of the first looks for
SANITIZERS = {
    "address": Sanitizer(
        "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer",
        ("libasan.so", "libstdc++.so"),
        {"ASAN_OPTIONS": "detect_leaks=0:exitcode=99"},
    ),
    "thread": Sanitizer("-fsanitize=thread -fno-omit-frame-pointer", ("libtsan.so",), {"TSAN_OPTIONS": "exitcode=66"}),
}
FOUND = re.compile(r"(Address|Thread)Sanitizer|runtime error:")
THREADED = (  # the shortest first, for a small time budget
    "tests/compiler/cpu/test_row_runner.py",
    "tests/recurrence/test_compiled_cpp.py",
    "tests/compiler/cpu/test_sequence_programs.py",
    "tests/laws/test_row_laws.py",
    "tests/laws/test_compiled_laws.py",
)
LAWS = {
    "address": (
        "tests/models/ngram/test_ngram_tables.py",
        "tests/compiler/cpu/test_step_programs.py",
        "tests/generation/test_native_engine.py",
        *THREADED,
        "tests/laws/test_native_laws.py",
    ),
    "thread": THREADED,
}
GROWS = (
    "tests/generation/test_native_engine.py::test_a_long_text_takes_no_more_memory_than_a_short_one"  # sanitizers do
)
PARTS = {  # of files that take many minutes: every so many-th test is one case
    "tests/laws/test_row_laws.py": 4,
    "tests/laws/test_compiled_laws.py": 4,
    "tests/laws/test_native_laws.py": 6,
}
RUN = """
import sys, pytest, torch
from elman.compiler.cpu import runtime

class Part:
    def pytest_collection_modifyitems(self, items):
        part, parts = map(int, sys.argv[1].split("/"))
        items[:] = items[part::parts]

runtime.MIN_THREAD_WORK = 1
torch.get_num_threads = lambda: 3
sys.exit(pytest.main(sys.argv[2:], [Part()]))
"""
ROOT = Path(__file__).parents[2]


def environment(name: str = "address") -> dict[str, str] | None:
    """Variables with which compiled code is checked; None where the compiler is not GCC with its sanitizers."""
    compiler, sanitizer = os.environ.get("CXX") or "c++", SANITIZERS[name]
    if sys.platform != "linux" or shutil.which(compiler) is None:
        return None
    paths = []
    for library in sanitizer.libraries:
        told = subprocess.run([compiler, f"-print-file-name={library}"], capture_output=True, text=True, check=False)
        paths.append(told.stdout.strip())
    if not all(Path(path).is_absolute() for path in paths):
        return None
    variables = {"CXX": f"{compiler} {sanitizer.flags}", "LD_PRELOAD": " ".join(paths), "OMP_NUM_THREADS": "1"}
    return {**os.environ, **variables, **sanitizer.options}


def run(name: str, laws: str, part: str) -> tuple[int, dict[str, Any]]:
    """How many tests of a part of a file passed, and what went wrong, if anything."""
    variables = environment(name)
    if variables is None:
        raise SystemExit("needs Linux, and GCC with its sanitizers")
    command = [sys.executable, "-c", RUN, part, "-q", "-p", "no:cacheprovider", laws, "--deselect", GROWS]
    ended = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, check=False)
    report = ended.stdout + ended.stderr
    passed = sum(int(found) for found in re.findall(r"(\d+) passed", report))
    print(f"{name}, {laws} {part}: {passed} passed, exit code {ended.returncode}", flush=True)
    wrong = bool(FOUND.search(report)) or ended.returncode != 0
    failure = {"sanitizer": name, "tests": laws, "part": part, "code": ended.returncode, "said": report[-2000:]}
    return passed, failure if wrong else {}


def main() -> None:
    options = parser("sanitizers", __doc__, count=10**6, kinds=[*LAWS], seed=1, repeats=True).parse_args()
    files = [(name, laws) for name in options.kinds for laws in LAWS[name]]
    work = [(*one, f"{part}/{PARTS.get(one[1], 1)}") for one in files for part in range(PARTS.get(one[1], 1))]
    options.count = min(options.count, len(work))
    campaign = Campaign(options)
    if options.again:
        campaign.repeat(lambda one: not run(one["sanitizer"], one["tests"], one["part"])[1])
        return
    for number in campaign.numbers():
        passed, failure = run(*work[number])
        campaign.tally(f"{work[number][0]}: tests passed", *([failure] if failure else []), times=passed)
    campaign.end()


if __name__ == "__main__":
    main()
