"""What is told of a case as soon as it is known: a file that is always whole, and a few lines on the screen."""

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

from elman.bench.harness import machine

NAME = "recurrence.json"


def save(results: dict[str, Any]) -> Path | None:
    """Into the folder that OUT names, if it does."""
    if not (folder := os.environ.get("OUT")):
        return None
    path = Path(folder, NAME)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    told = {"date": str(date.today()), "machine": machine(), "results": results}
    aside.write_text(json.dumps(told, indent=1))
    aside.replace(path)
    return path


def show(row: dict[str, Any]) -> None:
    print("\n".join(lines(row)), flush=True)


def lines(row: dict[str, Any]) -> list[str]:
    """The case, whether it is right, then for each variant microseconds for a step, forward and with backward, and how
    many times that is of ours in the first dtype."""
    found = [row["name"]]
    for one in row["checks"]:
        what = " ".join(str(one[key]) for key in ("kind", "partition") if key in one)
        if "failed" in one:
            found.append(f"  {what}: FAILED: {one['failed']}")
        else:
            told = [f"{name} {_errors(one[name])}" for name in ("ours", "vendor", "reference") if name in one]
            found.append(f"  {what}: {one['verdict']}: {', '.join(told)}; first call {one['first_call_s']} s")
    times = row["times"]
    for reason in ("failed", "skipped"):
        if reason in times:
            return [*found, f"  not timed: {times[reason]}"]
    ours = {way: _first_of_ours(each) for way, each in times.items()}
    for name in times["forward"]:
        figures = [_figure(times[way][name], None if name.startswith("ours") else ours[way]) for way in times]
        found.append(f"  {name:<44} {' / '.join(figures)}")
    return found


def _errors(one: dict[str, float]) -> str:
    return " ".join(f"{size:.1e}" for size in one.values())


def _first_of_ours(times: dict[str, Any]) -> float | None:
    found = (one["us"] for name, one in times.items() if name.startswith("ours") and isinstance(one, dict))
    return next(found, None)


def _figure(one: Any, ours: float | None) -> str:
    if not isinstance(one, dict):
        return str(one)
    return f"{one['us']:.2f}" + (f" ({one['us'] / ours:.1f} x)" if ours else "")
