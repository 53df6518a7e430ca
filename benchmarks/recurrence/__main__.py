"""python -m benchmarks.recurrence: see the package."""

import argparse
import os

from benchmarks.recurrence import MINUTES
from benchmarks.recurrence import __doc__ as told
from benchmarks.recurrence.cases import CASES, chosen
from benchmarks.recurrence.running import run, work
from elman.bench.harness import write


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.recurrence", description=told, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, help="nothing is begun after them")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="cases with one of these in their name")
    parser.add_argument("--but", nargs="*", default=[], metavar="NAME", help="no case with one of these in its name")
    parser.add_argument("--list", action="store_true", help="only name the cases")
    parser.add_argument("--small", action="store_true", help="few rows, steps and units: to try it without a GPU")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        work()
        return
    cases = chosen(options.only, options.but)
    if not cases:
        asked = [
            f"--{name} {' '.join(words)}" for name, words in (("only", options.only), ("but", options.but)) if words
        ]
        parser.error(f"{' '.join(asked)}: that leaves no case; --list names all {len(CASES)}")
    if options.list:
        print("\n".join(case.name for case in cases))
        return
    if options.small:
        cases = [case.shortened(3, 8, 16) for case in cases]
    results = run(cases, options.minutes)
    if not os.environ.get("OUT"):
        print(f"wrote {write('recurrence', results)}")


if __name__ == "__main__":
    main()
