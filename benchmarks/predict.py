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
    """Seconds, processor seconds and peak megabytes of an elman command of this version."""
    began = time.perf_counter()
    with open(source or os.devnull, "rb") as given, open(target or os.devnull, "wb") as answers:
        process = subprocess.Popen(
            [sys.executable, "-m", "elman", *map(str, command)],
            cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)},
            stdin=given, stdout=answers, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"elman {' '.join(map(str, command))}: exit code {process.returncode}")
    seconds, processor = time.perf_counter() - began, usage.ru_utime + usage.ru_stime
    return {"seconds": seconds, "processor_seconds": processor, "megabytes": usage.ru_maxrss / 1024}


def compare(rows: int, turns: int, versions: dict[str, tuple[Path, int]], place: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"threads": os.environ.get("OMP_NUM_THREADS", "all"), "turns": []}
    labelled = place / "labelled.tsv"
    labelled.write_text("label\ttext\n" + "".join(f"{n % 2}\t{text}\n" for n, text in enumerate(texts(2000))))
    for name, (tree, _) in versions.items():
        measure(["train", "--data", labelled, "--run", place / name, *TRAINING], tree, None, None)

    def told(name: str, way: str, count: int) -> None:
        tree, run, source = versions[name][0], place / name, place / "in.csv"
        if way == "lines":
            source.write_text("".join(f"{text}\n" for text in texts(count)))
            row = measure(["predict", run], tree, source, place / f"{name}.out")
        else:
            source.write_text("id,text,a,b\n" + "".join(f"{n},{text},x,\n" for n, text in enumerate(texts(count))))
            row = measure(["predict", run, "--data", source, "--out", place / "out.csv"], tree, None, None)
        row |= {"version": name, "way": way, "rows": count, "rows_per_second": count / row["seconds"]}  # type: ignore
        found["turns"].append(row)
        print({key: round(value, 1) if isinstance(value, float) else value for key, value in row.items()}, flush=True)

    for _ in range(turns):
        for name, (_, count) in versions.items():
            told(name, "lines", count)
    for way in ("lines", "table"):
        for count in (20_000, rows):
            told("this version", way, count)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="(default: %(default)s)")
    parser.add_argument("--turns", type=int, default=2, help="of both versions on fewer rows (default: %(default)s)")
    parser.add_argument("--turn-rows", type=int, default=100_000, help="rows of a turn (default: %(default)s)")
    parser.add_argument("--against", type=Path, help="a checkout of an earlier version")
    options = parser.parse_args()
    versions = {"this version": (Path.cwd(), options.turn_rows)}
    if options.against:
        versions = {"earlier version": (options.against.resolve(), options.turn_rows)} | versions
    with tempfile.TemporaryDirectory() as place:
        print(write("predict", compare(options.rows, options.turns, versions, Path(place))))


if __name__ == "__main__":
    main()
