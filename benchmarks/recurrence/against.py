"""Two versions of elman on one GPU, in turns: is any shape slower than before?

    python -m benchmarks.recurrence.against OLD_TREE [--module elman.bench.recurrence] [--minutes 8]

Each tree has a process of its own that does the timings (`timing.clock`). Everything is compiled first, by all cores;
then each case is timed in the order old, new, new, old. Torch's kernels, which are the same in both trees, are timed
beside ours: the spread of their ratios is the noise of this comparison.
"""

import argparse
import itertools
import os
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import torch

from benchmarks.recurrence.cases import Case, chosen
from benchmarks.recurrence.report import save
from benchmarks.recurrence.workers import Worker

ROUNDS = ("old", "new", "new", "old")
CHECK_LIMIT, TIME_LIMIT = 120.0, 60.0  # seconds for a job


def worker(tree: Path, module: str) -> Worker:
    """A process that runs the code of `tree`, whatever the working directory and path of this one are."""
    code = f"import os, sys; os.chdir({str(tree)!r}); sys.path[:0] = [{str(tree)!r}]; sys.argv = ['', '--worker']; "
    return Worker([sys.executable, "-c", f"{code}from {module}.__main__ import main; main()"])


def compile_all(cases: list[Case], makers: list[Any], always: dict[str, Any]) -> None:
    """Compile every kernel in parallel, by checking it: later processes find it in Triton's cache."""
    jobs: Queue[tuple[int, dict[str, Any]]] = Queue()
    for case, kind, tree in itertools.product(cases, ("bf16", "fp16", "fp32"), range(len(makers))):
        if kind in case.kinds:
            jobs.put((tree, {"job": "check", "case": asdict(case), "kind": kind, **always}))

    def work(number: int) -> None:
        workers = [make() for make in makers]
        while True:
            try:
                tree, job = jobs.get_nowait()
            except Empty:
                break
            answer = workers[tree].ask(job, CHECK_LIMIT)
            if answer.get("verdict") != "right":
                print(f"{('old', 'new')[tree]} {job['case']['cell']} {job['kind']}: {answer}", flush=True)
        for one in workers:
            one.close()

    count = min(12, max(1, (os.cpu_count() or 2) - 2))
    with ThreadPoolExecutor(count) as threads:
        list(threads.map(work, range(count)))


def ratios(case: Case, spans: dict[str, list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """For each pass and variant the new time over the old one, each the smaller median of its two rounds."""
    for way in ("forward", "training"):
        for name in spans["new"][0].get(way, ()):
            times = {side: [one[way][name]["us"] for one in spans[side] if _timed(one, way, name)] for side in spans}
            if all(times.values()):
                old, new = min(times["old"]), min(times["new"])
                yield {"case": case.name, "pass": way, "variant": name, **times, "ratio": round(new / old, 4)}


def _timed(one: dict[str, Any], way: str, name: str) -> bool:
    return isinstance(one.get(way, {}).get(name), dict)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="root of the older tree")
    parser.add_argument("--module", default="benchmarks.recurrence", help="its benchmark (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=8, help="no case starts later (default: %(default)s)")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="only cases with this in their name")
    parser.add_argument("--but", nargs="*", default=[], metavar="NAME", help="without cases with this in their name")
    parser.add_argument("--small", action="store_true", help="small shapes, to try it without a GPU")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    on_gpu = torch.cuda.is_available()
    always = {"device": "cuda", "form": "generated"} if on_gpu else {"device": "cpu", "form": "auto"}
    cases = [case for case in chosen(options.only, [*options.but, "sweep"]) if case.timed]
    if options.small:
        cases = [case.shortened(3, 8, 16) for case in cases]
    makers = [
        lambda: worker(options.old.resolve(), options.module),
        lambda: worker(Path.cwd(), "benchmarks.recurrence"),
    ]
    compile_all(cases, makers, always)
    print(f"compiled; {end - time.monotonic():.0f} s left", flush=True)
    sides = dict(zip(("old", "new"), (make() for make in makers), strict=True))
    rows: list[dict[str, Any]] = []
    for case in cases:
        if time.monotonic() > end:
            print(f"no time left for {case.name}", flush=True)
            continue
        spans: dict[str, list[dict[str, Any]]] = {"old": [], "new": []}
        job = {"job": "clock", "case": asdict(case), "kinds": list(case.kinds), "partitions": [], **always}
        for side in ROUNDS:
            spans[side].append(sides[side].ask(job, TIME_LIMIT))
        found = list(ratios(case, spans))
        for row in found:
            print(f"{row['case']:<40} {row['pass']:<9} {row['variant']:<28} {row['ratio']:.3f}", flush=True)
        if not found:
            print(f"{case.name}: {spans['old'][0]} {spans['new'][0]}", flush=True)
        rows += found
        save({"rounds": ROUNDS, "rows": rows})
    for one in sides.values():
        one.close()
    for who in ("ours", "torch"):
        own = sorted(row["ratio"] for row in rows if row["variant"].startswith(who))
        if own:
            print(
                f"{who}: new / old {own[0]:.3f} to {own[-1]:.3f}, median {statistics.median(own):.3f}, {len(own)} rows"
            )


if __name__ == "__main__":
    main()
