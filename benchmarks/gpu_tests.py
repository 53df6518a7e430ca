"""Runs all tests that use a GPU, in this one process, and records how many passed.

    python -m benchmarks.gpu_tests

They are those of the files that ask for a GPU or hold a kernel to its reference; the others are the same without one.
"""

import argparse
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.reporting import write

ROOT = Path(__file__).parents[1]
ASKS = re.compile(r"cuda\.is_available|triton_interpreter")


class Outcomes:
    """A plugin of pytest that counts."""

    def __init__(self) -> None:
        self.counts, self.reasons, self.failed = Counter[str](), Counter[str](), list[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self.counts[report.outcome] += 1
        if report.skipped and isinstance(report.longrepr, tuple):
            self.reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1
        if report.failed:
            self.failed.append(report.nodeid)


def _that_ask() -> list[Path]:
    return sorted(path for path in (ROOT / "tests").rglob("test_*.py") if ASKS.search(path.read_text("utf-8")))


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.gpu_tests", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="other files of tests")
    parser.add_argument("--to", type=Path, help="folder of the record (default: benchmarks/results)")
    options = parser.parse_args()
    paths = [path.absolute() for path in options.files] or _that_ask()
    outcomes, began = Outcomes(), time.monotonic()
    words = ["--rootdir", str(ROOT), "-p", "no:xdist", "-p", "no:cacheprovider", "-q", "--durations=25"]
    code = pytest.main([*words, *map(str, paths)], plugins=[outcomes])
    found: dict[str, Any] = {name: outcomes.counts[name] for name in ("passed", "failed", "skipped")}
    files = [str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name for path in paths]
    found |= {"reasons": dict(outcomes.reasons), "failures": outcomes.failed, "files": files, "processes": 1}
    print(f"wrote {write('tests', {**found, 'seconds': round(time.monotonic() - began)}, options.to)}")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
