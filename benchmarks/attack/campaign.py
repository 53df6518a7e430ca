"""What all attacks share: the command line, the count of their cases, and the record that a further campaign adds to.

`benchmarks/results/attack-NAME.json` has one entry for each day, machine, version and seed, with the outcomes of all
cases and every violation, and in `next` where kinds of cases that are numbered go on. `docs/reliability.md` is made of
these files.
"""

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch

import elman
from benchmarks.reporting import RESULTS
from elman import files
from elman.bench.harness import machine

MENDED = "mended since"  # outcome of a case that was a violation
EACH = 20.0  # seconds between two writings of the record


def parser(
    name: str,
    description: str | None,
    count: int,
    kinds: Sequence[str] = (),
    seed: int | None = None,
    repeats: bool = False,
) -> argparse.ArgumentParser:
    """The options that all attacks have; some can repeat violations."""
    own = random.SystemRandom().randrange(10**6) if seed is None else seed
    first = (description or "").partition("\n")[0]
    found = argparse.ArgumentParser(f"python -m benchmarks.attack.{name}", description=first)
    found.add_argument("--count", type=int, default=count, help="cases at the most (default: %(default)s)")
    found.add_argument("--seconds", type=float, default=float("inf"), help="end after so many (default: no limit)")
    found.add_argument(
        "--seed", type=int, default=own, help=f"of what is random (default: {'any' if seed is None else seed})"
    )
    found.add_argument("--anew", action="store_true", help="begin again, instead of going on after today's cases")
    found.add_argument(
        "--to", type=_absolute, default=str(RESULTS), metavar="DIR", help="for the record (default: %(default)s)"
    )
    if kinds:
        found.add_argument("--kinds", nargs="+", default=[*kinds], choices=kinds, help="of cases (default: all)")
    if repeats:
        found.add_argument("--again", action="store_true", help="try the violations on record again, and nothing else")
    found.set_defaults(name=name)
    return found


def _absolute(path: str) -> Path:
    """Before an attack works in another folder."""
    return Path(path).absolute()


class Campaign:
    """Ask `more` before each case, or take its number from `numbers`; call `tally` after it, and `end` after the
    last."""

    def __init__(self, options: argparse.Namespace):
        self.name, self.count, self.seed = options.name, options.count, options.seed
        self.kinds: list[str] = getattr(options, "kinds", [])
        self.path = options.to / f"attack-{self.name}.json"
        self.began, self.until = time.monotonic(), time.monotonic() + options.seconds
        self.dice, self.written = random.Random(self.seed), self.began
        stored = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.next: dict[str, int] = stored.get("next", {})
        self.key = {"date": date.today().isoformat(), "elman": elman.__version__, "seed": self.seed}
        self.key |= {"machine": machine()}
        entries: list[dict[str, Any]] = stored.get("campaigns", [])
        same = [one for one in entries if self.key.items() <= one.items()]
        self.entries, self.own = entries, same[0] if same else None
        before = self.before = dict(self.own) if self.own and not options.anew else dict[str, Any]()
        self.counts = Counter[str](before.get("counts", {}))
        self.cases: int = before.get("cases", 0)
        self.seconds: float = before.get("seconds", 0.0)
        self.violations: list[Any] = before.get("violations", [])
        self.facts: dict[str, Any] = before.get("facts", {})
        files.make_folder(self.path.parent)
        torch.set_num_threads(1)
        print(f"seed {self.seed}, from case {self.cases}", flush=True)

    def more(self) -> bool:
        return self.cases < self.count and time.monotonic() < self.until

    def numbers(self) -> Iterator[int]:
        """Numbers of the cases that are left; each is to be tallied."""
        while self.more():
            yield self.cases

    def tally(self, outcome: str, *violations: Any, times: int = 1) -> None:
        """One more case with this outcome, or of this kind, and what went wrong in it."""
        self.cases += 1
        self.counts[outcome] += times
        self.report(outcome, *violations)
        if time.monotonic() - self.written > EACH:
            self.write()

    def report(self, kind: str, *violations: Any) -> None:
        """What went wrong, as text or as facts."""
        for one in violations:
            self.violations.append(f"{kind}: {one}" if isinstance(one, str) else one)
            print(f"VIOLATION {json.dumps(self.violations[-1], ensure_ascii=False)[:1000]}", flush=True)

    def repeat(self, mended: Callable[[Any], bool]) -> None:
        """Tries the violations of earlier campaigns once more, with the program as it is now. Those that are mended by
        now stay on record as such."""
        for entry in self.entries:
            for one in [*entry["violations"]]:
                if not mended(one):
                    print(f"STILL A VIOLATION {json.dumps(one, ensure_ascii=False)[:1000]}", flush=True)
                    continue
                entry["violations"].remove(one)
                entry.setdefault("mended", []).append({**one, "mended": self.key["date"]})
                entry["counts"] = Counter(entry["counts"]) - Counter([one.get("outcome", "wrong")]) + Counter([MENDED])
        self._store(self.entries)

    def write(self) -> None:
        now = time.monotonic()
        self.seconds, self.written = round(self.seconds + now - self.written, 1), now
        entry = {**self.before, **self.key, "cases": self.cases, "counts": dict(sorted(self.counts.items()))}
        entry |= {"violations": self.violations, "seconds": self.seconds, "facts": self.facts}
        others = [one for one in self.entries if one is not self.own]
        self._store([*others, entry])

    def _store(self, entries: list[dict[str, Any]]) -> None:
        record = {"attack": self.name, "next": self.next, "campaigns": entries}
        files.atomic_write(self.path, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())

    def end(self) -> None:
        """Prints the counts and exits: with 1 after any violation."""
        self.write()
        shares = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(self.counts.items()))
        took = time.monotonic() - self.began
        print(f"{self.cases:,} cases, {len(self.violations)} violations in {took:,.0f} s ({shares})", flush=True)
        raise SystemExit(bool(self.violations))
