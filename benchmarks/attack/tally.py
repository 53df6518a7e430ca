"""The record of an attack: counted case by case, kept on disk, and continued where the last call stopped.

benchmarks/results/attack-NAME.json has one campaign for each day, version and seed, with the counts of all outcomes and
every violation; docs/reliability.md is made of these files.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import elman
from benchmarks.reporting import RESULTS
from elman.bench.harness import machine
from elman.files import atomic_write

EVERY = 20.0  # seconds between two writings of the record


class Tally:
    """Counts outcomes of numbered cases. The same seed makes case N the same again."""

    def __init__(self, name: str, options: argparse.Namespace):
        self.name, self.path = name, options.to / f"attack-{name}.json"
        self.most, self.until = options.count, time.monotonic() + options.seconds
        self.key = {"date": date.today().isoformat(), "elman": elman.__version__, "seed": options.seed}
        stored = json.loads(self.path.read_text())["campaigns"] if self.path.exists() else []
        same = [one for one in stored if self.key.items() <= one.items()]
        self.others = [one for one in stored if one not in same]
        before: dict[str, Any] = same[0] if same and not options.anew else {}
        self.cases: int = before.get("cases", 0)
        self.seconds: float = before.get("seconds", 0.0)
        self.counts = Counter[str](before.get("counts", {}))
        self.violations: list[Any] = before.get("violations", [])
        self.facts: dict[str, Any] = before.get("facts", {})
        self._written = time.monotonic()

    def numbers(self) -> Iterator[int]:
        """Numbers of the cases that are left, until the count or the time is reached."""
        while self.cases < self.most and time.monotonic() < self.until:
            yield self.cases
            self.cases += 1
            if time.monotonic() - self._written > EVERY:
                self.write()
        self.write()

    def count(self, outcome: str, violation: Any = None, times: int = 1) -> None:
        """One outcome; `violation` describes one that must not be."""
        self.counts[outcome] += times
        if violation is not None:
            self.violations.append(violation)
            print(f"VIOLATION {json.dumps(violation, ensure_ascii=False)[:1000]}", flush=True)

    def write(self) -> None:
        now = time.monotonic()
        self.seconds, self._written = round(self.seconds + now - self._written, 1), now
        entry = {**self.key, "machine": machine(), "cases": self.cases, "counts": dict(sorted(self.counts.items()))}
        entry |= {"violations": self.violations, "seconds": self.seconds, "facts": self.facts}
        record = {"attack": self.name, "campaigns": [*self.others, entry]}
        atomic_write(self.path, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())

    def end(self) -> None:
        """Prints the counts and exits: with 1 after any violation."""
        shares = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(self.counts.items()))
        print(
            f"{self.cases:,} cases, {len(self.violations)} violations in {self.seconds:,.0f} s ({shares})", flush=True
        )
        raise SystemExit(bool(self.violations))


def parser(description: str | None, count: int) -> argparse.ArgumentParser:
    """The options that all attacks have."""
    found = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    found.add_argument("--count", type=int, default=count, help="cases in all (default: %(default)s)")
    found.add_argument("--seconds", type=float, default=float("inf"), help="end after so many (default: no limit)")
    found.add_argument("--seed", type=int, default=1, help="of the cases (default: %(default)s)")
    found.add_argument("--anew", action="store_true", help="begin again, instead of going on after today's cases")
    found.add_argument("--to", type=Path, default=RESULTS, help="folder for the record (default: %(default)s)")
    return found
