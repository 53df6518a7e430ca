"""Benchmarks of elman against other libraries, in interleaved rounds on this machine.

    python -m benchmarks                      every suite that can run here
    python -m benchmarks cells training       two of them
    python -m benchmarks --list               names, titles and missing requirements

A suite is not timed while a fast implementation differs from its reference. Results (JSON) go to benchmarks/results.
"""

import argparse
import shlex
import sys
from pathlib import Path

from benchmarks.reporting import write
from benchmarks.suites import SUITES


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="suites to run (default: all that can run here)")
    parser.add_argument("--rounds", type=_positive, help="timing rounds per variant (default: set by the suite)")
    parser.add_argument("--to", type=Path, metavar="DIR", help="folder for the results (default: benchmarks/results)")
    parser.add_argument("--list", action="store_true", help="list the suites and exit")
    options = parser.parse_args(arguments)
    if options.list:
        for name, suite in SUITES.items():
            needs = suite.missing()
            print(f"{name:<{max(map(len, SUITES))}} {suite.title}{f' (needs {needs})' if needs else ''}")
        return 0
    if unknown := [name for name in options.suites if name not in SUITES]:
        parser.error(f"unknown suite: {', '.join(unknown)} (choose from {', '.join(SUITES)})")
    if options.to is not None:
        try:  # before anything is measured: results that cannot be written would be lost
            options.to.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            print(f"cannot write results to {options.to}: {problem.strerror}", file=sys.stderr)
            return 1
    return run(options.suites, options.rounds, options.to)


def run(names: list[str], rounds: int | None, to: Path | None) -> int:
    """Runs suites one after another; all of them if no name is given. Returns the exit code."""
    chosen = names or list(SUITES)
    for position, name in enumerate(chosen):
        suite = SUITES[name]
        if needs := suite.missing():
            print(f"{'error' if names else 'skipped'}: {name} needs {needs}", file=sys.stderr)
            if names:
                return 1
            continue
        if errors := suite.check():
            print(f"error: {name} is not timed, results are wrong: {'; '.join(errors)}", file=sys.stderr)
            return 1
        print(f"\n{name}: {suite.title}")
        try:
            results = suite.measure(rounds)
        except KeyboardInterrupt:
            left = [one for one in chosen[position:] if not SUITES[one].missing()]
            more = [*(["--rounds", str(rounds)] if rounds else []), *(["--to", str(to)] if to else [])]
            command = shlex.join(["python", "-m", "benchmarks", *left, *more])
            print(f"interrupted: no results of {name} were written; continue with: {command}", file=sys.stderr)
            return 130
        print(f"wrote {write(name, results, to)}", file=sys.stderr)
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


if __name__ == "__main__":
    raise SystemExit(main())
