"""Results of a suite: printed as a table, and written with the date and the machine."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import torch

from elman.bench.harness import machine

RESULTS = Path("benchmarks/results")


def write(name: str, results: Any, folder: Path | None = None) -> Path:
    """Writes DATE-NAME-cpu.json (or -gpu) with the machine, to benchmarks/results if it exists, else here."""
    today = date.today().isoformat()
    kind = "gpu" if torch.cuda.is_available() else "cpu"
    folder = folder or (RESULTS if RESULTS.is_dir() else Path())
    path = folder / f"{today}-{name}-{kind}.json"
    path.write_text(json.dumps({"date": today, "machine": machine(), "results": results}, indent=1) + "\n")
    return path


def show(title: str, table: dict[str, dict[str, float]], against: str) -> None:
    """Prints a table of `compare`."""
    print(f"\n{title} (speed-up over: {against})")
    for name, row in table.items():
        print(f"  {name:<34} {row['ms']:9.1f} ms   {row['faster']:5.2f} x   ({row['low']:.2f} to {row['high']:.2f})")
