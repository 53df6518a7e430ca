"""Run the laws of the native engines with all generated C++ under AddressSanitizer and UndefinedBehaviorSanitizer.

    python -m benchmarks.attack.sanitizers

The compiler gets the flags of the sanitizers by CXX, and Python the library of the first by LD_PRELOAD, so that memory
of torch and numpy is guarded as well. Any access outside of an array, and any undefined operation, ends the process.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.attack.tally import Tally, parser

FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
FOUND = re.compile(r"AddressSanitizer|runtime error:")
LIBRARIES = ("libasan.so", "libstdc++.so")  # the second for exceptions, which the first looks for
LAWS = (  # the shortest first, for a small time budget
    "tests/models/ngram/test_ngram_tables.py",
    "tests/compiler/cpu/test_step_programs.py",
    "tests/generation/test_native_engine.py",
    "tests/compiler/cpu/test_row_runner.py",
    "tests/recurrence/test_compiled_cpp.py",
    "tests/compiler/cpu/test_sequence_programs.py",
    "tests/laws/test_native_laws.py",
    "tests/laws/test_row_laws.py",
    "tests/laws/test_compiled_laws.py",
)
ROOT = Path(__file__).parents[2]


def environment() -> dict[str, str] | None:
    """Variables with which compiled code is checked; None where the compiler is not GCC with its sanitizers."""
    compiler = os.environ.get("CXX") or "c++"
    if sys.platform != "linux" or shutil.which(compiler) is None:
        return None
    paths = []
    for name in LIBRARIES:
        told = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False)
        paths.append(told.stdout.strip())
    if not all(Path(path).is_absolute() for path in paths):
        return None
    variables = {"CXX": f"{compiler} {FLAGS}", "LD_PRELOAD": " ".join(paths), "OMP_NUM_THREADS": "1"}
    return {**os.environ, **variables, "ASAN_OPTIONS": "detect_leaks=0:exitcode=99"}


def main() -> None:
    options = parser(__doc__, count=len(LAWS)).parse_args()
    variables = environment()
    if variables is None:
        raise SystemExit("needs Linux, and GCC with its sanitizers")
    tally = Tally("sanitizers", options)
    for number in tally.numbers():
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", LAWS[number]]
        ended = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, check=False)
        report = ended.stdout + ended.stderr
        passed = sum(int(found) for found in re.findall(r"(\d+) passed", report))
        tally.count("tests passed", times=passed)
        wrong = bool(FOUND.search(report)) or ended.returncode != 0
        failure = {"tests": LAWS[number], "code": ended.returncode, "said": report[-2000:]}
        if wrong:
            tally.count("files of tests with a finding", failure)
        print(f"{LAWS[number]}: {passed} passed, exit code {ended.returncode}", flush=True)
    tally.end()


if __name__ == "__main__":
    main()
