"""What every attack shares: the command line, the tally, and the record that a further campaign adds to.

`benchmarks/results/attack-NAME.json` has one entry for each day, machine and version, with what was tried and every
violation, and in `next` where a campaign that ran out of time goes on.
"""

import argparse
import json
import random
import time
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import torch

import elman
from benchmarks.reporting import RESULTS
from elman import files
from elman.bench.harness import machine

EACH = 30  # seconds between two writings of the record


class Campaign:
    """Ask `more` before each attempt, call `tally` after it, and `end` after the last."""

    def __init__(self, name: str, doc: str | None, count: int, kinds: list[str]):
        parser = argparse.ArgumentParser(f"python -m benchmarks.attack.{name}", description=(doc or "").split("\n")[0])
        parser.add_argument("--count", type=int, default=count, help="attempts at the most (default: %(default)s)")
        parser.add_argument("--seconds", type=float, default=3600.0, help="time budget (default: %(default)s)")
        parser.add_argument("--kinds", nargs="+", default=kinds, choices=kinds, help="what to attack (default: all)")
        parser.add_argument(
            "--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of what is random (default: any)"
        )
        parser.add_argument(
            "--to", type=Path, default=RESULTS, metavar="DIR", help="folder of the record (default: %(default)s)"
        )
        given = parser.parse_args()
        self.count, self.seconds, self.kinds, self.seed = given.count, given.seconds, given.kinds, given.seed
        self.path = (given.to / f"attack-{name}.json").absolute()
        files.make_folder(self.path.parent)
        self.dice, self.name, self.began, self.written = random.Random(self.seed), name, time.monotonic(), 0.0
        self.counts, self.violations = Counter[str](), list[str]()
        stored = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.entries: list[dict[str, Any]] = stored.get("campaigns", [])
        self.next: dict[str, int] = stored.get("next", {})
        print(f"seed {self.seed}: {', '.join(self.kinds)}", flush=True)
        torch.set_num_threads(1)

    @property
    def done(self) -> int:
        return sum(self.counts.values())

    def more(self) -> bool:
        return self.done < self.count and time.monotonic() - self.began < self.seconds

    def tally(self, kind: str, *violations: str) -> None:
        """One more attempt on this kind, and what went wrong in it."""
        self.counts[kind] += 1
        self.report(kind, *violations)
        if time.monotonic() - self.written > EACH:
            self.write()

    def report(self, kind: str, *violations: str) -> None:
        for text in violations:
            print(f"VIOLATION {kind}: {text}", flush=True)
            self.violations.append(f"{kind}: {text}")

    def write(self) -> None:
        key = {"date": date.today().isoformat(), "elman": elman.__version__, "machine": machine()}
        same = [one for one in self.entries if key.items() <= one.items()]
        before: dict[str, Any] = same[0] if same else {"counts": {}, "seconds": 0, "violations": []}
        counts = Counter(before["counts"]) + self.counts
        entry = {**key, "counts": dict(sorted(counts.items())), "violations": before["violations"] + self.violations}
        entry["seconds"] = round(before["seconds"] + time.monotonic() - self.began)
        others = [one for one in self.entries if one not in same]
        files.atomic_write(
            self.path,
            (
                json.dumps({"attack": self.name, "next": self.next, "campaigns": [*others, entry]}, indent=1) + "\n"
            ).encode(),
        )
        self.written = time.monotonic()

    def end(self) -> None:
        """Prints the counts and exits: with 1 after any violation."""
        self.write()
        shares = ", ".join(f"{kind} {count}" for kind, count in sorted(self.counts.items()))
        took = time.monotonic() - self.began
        print(f"{self.done} attempts, {len(self.violations)} violations in {took:.0f} s ({shares})", flush=True)
        raise SystemExit(bool(self.violations))
