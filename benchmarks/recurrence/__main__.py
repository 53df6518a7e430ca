"""Command line of the recurrence benchmark: python -m benchmarks.recurrence."""

import argparse
import os

from benchmarks.recurrence import MINUTES
from benchmarks.recurrence import __doc__ as description
from benchmarks.recurrence.cases import CASES, chosen
from benchmarks.recurrence.running import run, work
from benchmarks.reporting import write


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.recurrence", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help="time limit: no case starts later (default: %(default)s)"
    )
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="NAME", help="only cases whose name contains one of these"
    )
    parser.add_argument(
        "--but", nargs="*", default=[], metavar="NAME", help="without cases whose name contains one of these"
    )
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    parser.add_argument("--small", action="store_true", help="small batch, length and width, to test it without a GPU")
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
        parser.error(f"{' '.join(asked)}: matches no case; --list shows all {len(CASES)}")
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
