"""Rows per second and peak memory of `elman predict` for long tables, beside an earlier version.

    python -m benchmarks.predict --rows 1000000 --against CHECKOUT

A classifier of two million parameters, trained for three updates by each version, reads short texts: as lines of
standard input, and as a table of four columns. CHECKOUT is a folder with the sources of an earlier version.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.reporting import write

WORDS = [a + b for a in "bcdfghklmnprstvwz" for b in ("a", "el", "ir", "ont", "ust", "ade")]
TRAINING = ["--task", "classify", "--model", "lstm", "--params", "2000000", "--training.max_steps", "3"]


def texts(rows: int) -> list[str]:
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 12))) for _ in range(rows)]


def measure(command: list[Any], tree: Path, source: Path | None, target: Path | None) -> dict[str, float]:
    """Seconds and peak megabytes of an elman command of this version."""
    began = time.perf_counter()
    with open(source or os.devnull, "rb") as given, open(target or os.devnull, "wb") as answers:
        process = subprocess.Popen(
            [sys.executable, "-m", "elman", *map(str, command)],
            cwd=tree, stdin=given, stdout=answers, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"elman {' '.join(map(str, command))}: exit code {process.returncode}")
    return {"seconds": time.perf_counter() - began, "megabytes": usage.ru_maxrss / 1024}


def compare(rows: int, versions: dict[str, Path], place: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, tree in versions.items():
        labelled = place / "labelled.tsv"
        labelled.write_text("label\ttext\n" + "".join(f"{n % 2}\t{text}\n" for n, text in enumerate(texts(2000))))
        run = place / name
        measure(["train", "--data", labelled, "--run", run, *TRAINING], tree, None, None)
        for count in (rows // 10, rows):
            lines, table, answers = place / "lines.txt", place / "in.csv", place / f"{name}.out"
            lines.write_text("".join(f"{text}\n" for text in texts(count)))
            table.write_text("id,text,a,b\n" + "".join(f"{n},{text},x,\n" for n, text in enumerate(texts(count))))
            ways = {"lines": measure(["predict", run], tree, lines, answers)}
            if name == "this version":
                out = place / "out.csv"
                ways["table"] = measure(["predict", run, "--data", table, "--out", out], tree, None, None)
            for way, row in ways.items():
                row["rows_per_second"] = count / row["seconds"]
                found.setdefault(f"{name}, {way}", {})[count] = row
                print(f"{name}, {way}, {count:,} rows: {row['rows_per_second']:,.0f}/s, {row['megabytes']:.0f} MB")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="(default: %(default)s)")
    parser.add_argument("--against", type=Path, help="a checkout of an earlier version")
    options = parser.parse_args()
    versions = {"this version": Path.cwd()}
    if options.against:
        versions["earlier version"] = options.against.resolve()
    with tempfile.TemporaryDirectory() as place:
        print(write("predict", compare(options.rows, versions, Path(place))))


if __name__ == "__main__":
    main()
