"""The results of an attack: counted case by case, kept on disk, and continued where the last call stopped.

benchmarks/results/DATE-attack-NAME.json holds date, machine and results: `cases` done, `outcomes` with their counts,
`failures` (at most 100 are described). docs/reliability.md is made of these files.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.reporting import RESULTS
from elman.bench.harness import machine

DESCRIBED = 100
EVERY = 20.0  # seconds between two writes


class Tally:
    """Counts outcomes of numbered cases. The same seed makes case N the same again."""

    def __init__(self, name: str, options: argparse.Namespace):
        self.path: Path = options.to / f"{date.today().isoformat()}-attack-{name}.json"
        self.most, self.until, self.seed = options.count, time.monotonic() + options.seconds, options.seed
        self.cases, self.seconds, self.failed = 0, 0.0, 0
        self.outcomes: Counter[str] = Counter()
        self.failures: list[Any] = []
        self.facts: dict[str, Any] = {}
        if self.path.exists() and not options.anew:
            before = json.loads(self.path.read_text())["results"]
            if before["seed"] == self.seed:
                self.cases, self.seconds, self.failed = before["cases"], before["seconds"], before["failed"]
                self.outcomes, self.failures = Counter(before["outcomes"]), before["failures"]
        self._written = time.monotonic()

    def numbers(self) -> Iterator[int]:
        """Numbers of the cases that are left, until the count or the time is reached."""
        while self.cases < self.most and time.monotonic() < self.until:
            yield self.cases
            self.cases += 1
            if time.monotonic() - self._written > EVERY:
                self.write()
        self.write()

    def count(self, outcome: str, failure: Any = None) -> None:
        """One outcome; `failure` describes one that must not be."""
        self.outcomes[outcome] += 1
        if failure is not None:
            self.failed += 1
            self.failures += [failure] * (len(self.failures) < DESCRIBED)

    def write(self) -> None:
        now = time.monotonic()
        self.seconds, self._written = self.seconds + now - self._written, now
        results = {"seed": self.seed, "cases": self.cases, "failed": self.failed, "seconds": round(self.seconds, 1)}
        results |= {"outcomes": dict(sorted(self.outcomes.items())), "failures": self.failures, **self.facts}
        content = {"date": date.today().isoformat(), "machine": machine(), "results": results}
        self.path.write_text(json.dumps(content, indent=1) + "\n")

    def end(self) -> None:
        """Prints the counts and exits: 1 after any failure."""
        print(f"{self.cases:,} cases in {self.seconds:,.0f} s: {dict(sorted(self.outcomes.items()))}")
        for failure in self.failures[:20]:
            print(json.dumps(failure, ensure_ascii=False)[:1000])
        raise SystemExit(bool(self.failed))


def parser(description: str | None, count: int) -> argparse.ArgumentParser:
    """The options that all attacks have."""
    found = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    found.add_argument("--count", type=int, default=count, help="cases in all (default: %(default)s)")
    found.add_argument("--seconds", type=float, default=float("inf"), help="end after so many (default: no limit)")
    found.add_argument("--seed", type=int, default=1, help="of the cases (default: %(default)s)")
    found.add_argument("--anew", action="store_true", help="begin again, instead of going on after today's cases")
    found.add_argument("--to", type=Path, default=RESULTS, help="folder for the results (default: %(default)s)")
    return found
