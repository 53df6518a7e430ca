"""elman bench: how fast this machine is, beside other libraries in the same run."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from elman.cli import options
from elman.errors import RunError, UnknownName


def bench(
    suites: Annotated[
        list[str] | None, typer.Argument(help="What to measure (default: all that can run here).")
    ] = None,
    rounds: Annotated[
        int | None, options.option(help="Rounds in which all take turns.", default="the suite's", min=1)
    ] = None,
    to: Annotated[
        Path | None, options.option(help="Folder for the figures.", default="benchmarks/results if it is there, else .")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Only say what there is.")] = False,
) -> None:
    """Measure speed against peers, in rounds that take turns; silent while a fast form differs from its reference."""
    from elman.bench import SUITES
    from elman.bench.harness import write

    if listing:
        for name, suite in SUITES.items():
            needs = suite.obstacle()
            print(f"{name:<{max(map(len, SUITES))}} {suite.title}{f' (needs {needs})' if needs else ''}")
        return
    for name in suites or []:
        if name not in SUITES:
            raise UnknownName("suite", name, list(SUITES))
    if to is not None:  # before anything is measured, since it may not be possible
        try:
            to.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise RunError(f"no figures can be written to {to}: {problem.strerror}") from problem
    for name in suites or SUITES:
        suite = SUITES[name]
        if needs := suite.obstacle():
            if suites:
                raise RunError(f"{name} needs {needs}")
            print(f"{name} is left out: it needs {needs}", file=sys.stderr)
            continue
        if broken := suite.broken():
            raise RunError(f"no speed is reported while something is wrong: {'; '.join(broken)}")
        print(f"\n{name}: {suite.title}")
        try:
            figures = suite.measure(rounds)
        except KeyboardInterrupt:
            names = [*(suites or SUITES)]
            left = [one for one in names[names.index(name) :] if not SUITES[one].obstacle()]
            more = [*(["--rounds", str(rounds)] if rounds else []), *(["--to", str(to)] if to else [])]
            again = options.hint("bench", *left, *more)
            print(f"interrupted; nothing of {name} is written; go on with: {again}", file=sys.stderr)
            raise typer.Exit(130) from None
        print(f"wrote {write(name, figures, to)}", file=sys.stderr)
