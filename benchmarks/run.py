"""`make bench`: every benchmark in one go, and none while a law is broken."""

import subprocess
import sys

from benchmarks import scan, train_step
from benchmarks.harness import write

BENCHMARKS = {"train-step-cpu": train_step.main, "scan-cpu": scan.main}


def main() -> int:
    laws = [sys.executable, "-m", "pytest", "-q", "-x", "tests/laws", "tests/ops"]
    if subprocess.run(laws, check=False).returncode:
        print("A law is broken: no speed is reported until it holds.", file=sys.stderr)
        return 1
    for name, measure in BENCHMARKS.items():
        print(f"wrote {write(name, measure())}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
