"""Runs all cases within a time limit: checked in parallel, timed one at a time, results saved after each."""

import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from queue import Queue
from typing import Any

import torch

from benchmarks.recurrence.cases import Case, divisions
from benchmarks.recurrence.checking import check
from benchmarks.recurrence.report import save, show
from benchmarks.recurrence.timing import clock
from benchmarks.recurrence.workers import Worker, serve

WAVE = 8  # cases that are checked together before they are timed
CHECKERS = 12  # checking processes; each takes some GPU memory
CHECK_LIMIT, TIME_LIMIT = 100.0, 60.0  # seconds per check, compilation included, and per timing of a case
LAST = 8.0  # seconds before the end in which nothing starts


class Pool:
    """A pool of worker processes; each runs one check at a time."""

    def __init__(self, workers: list[Worker], end: float, **always: Any):
        self.workers, self.end, self.always = workers, end, always
        self.idle: Queue[Worker] = Queue()
        for one in workers:
            self.idle.put(one)
        self.threads = ThreadPoolExecutor(len(workers))

    def check(self, case: Case, checks: list[dict[str, Any]]) -> list[Future[dict[str, Any]]]:
        return [self.threads.submit(self._check, case, one) for one in checks]

    def _check(self, case: Case, what: dict[str, Any]) -> dict[str, Any]:
        if "failed" in what:
            return what
        one = self.idle.get()
        try:
            left = self.end - time.monotonic()
            if left < LAST:
                return {**what, "failed": "there was no time left"}
            job = {"job": "check", "case": asdict(case), **self.always, **what}
            return {**what, **one.ask(job, min(CHECK_LIMIT, left))}
        finally:
            self.idle.put(one)

    def close(self) -> None:
        for one in self.workers:
            one.close()
        self.threads.shutdown()


def run(cases: list[Case], minutes: float, worker: Callable[[], Worker] = Worker) -> dict[str, Any]:
    """Checks and times of every case; saved whenever a part is finished."""
    always = {"device": "cuda", "form": "generated"} if torch.cuda.is_available() else {"device": "cpu", "form": "auto"}
    end = time.monotonic() + 60 * minutes
    timer = worker()
    pool = Pool([worker() for _ in range(min(CHECKERS, max(1, (os.cpu_count() or 2) - 2)))], end, **always)
    rows: list[dict[str, Any]] = []
    results = {**always, "cases": rows}
    try:
        timer.start()
        for wave in _waves(cases):
            start = len(rows)
            asked = [pool.check(case, _checks(case)) for case in wave]
            for case, checks in zip(wave, asked, strict=True):
                rows.append({"name": case.name, "case": asdict(case), "checks": [one.result() for one in checks]})
                save(results)
            for case, row in zip(wave, rows[start:], strict=True):
                row["times"] = _timed(case, row["checks"], timer, end, always)
                save(results)
                show(row)
    finally:
        timer.close()
        pool.close()
    return results


def _waves(cases: list[Case]) -> list[list[Case]]:
    """Groups of cases; those that must run alone come first, before anything is compiled."""
    alone, rest = ([case for case in cases if (case.form == "alone") == own] for own in (True, False))
    return [[case] for case in alone] + [rest[start : start + WAVE] for start in range(0, len(rest), WAVE)]


def _checks(case: Case) -> list[dict[str, Any]]:
    """One check per dtype and partition of a sweep; or the error that prevented them."""
    try:
        parts: list[dict[str, Any]] = [{}]
        if case.form == "sweep":
            parts = [{"partition": one} for one in divisions(case)]
    except Exception as problem:
        return [{"failed": f"{type(problem).__name__}: {problem}"}]
    return [{"kind": kind, **part} for kind in case.kinds for part in parts]


def _timed(
    case: Case, checks: list[dict[str, Any]], timer: Worker, end: float, always: dict[str, Any]
) -> dict[str, Any]:
    """Times of the kernels whose results are not wrong."""
    sound = [one for one in checks if one.get("verdict") in ("right", "less exact")]
    left = end - time.monotonic()
    if not case.timed:
        return {"skipped": "it is only checked"}
    if not sound:
        return {"skipped": "all of it failed or is wrong"}
    if left < LAST:
        return {"skipped": "there was no time left"}
    kinds = list(dict.fromkeys(one["kind"] for one in sound))
    partitions = [one["partition"] for one in sound if "partition" in one]
    asked = {"job": "clock", "case": asdict(case), "kinds": kinds, "partitions": partitions, **always}
    return timer.ask(asked, min(TIME_LIMIT, left))


def work() -> None:
    """Main loop of a worker process."""

    def case_of(case: dict[str, Any]) -> Case:
        settings = tuple((key, value) for key, value in case["settings"])
        return Case(**{**case, "settings": settings, "shape": tuple(case["shape"]), "kinds": tuple(case["kinds"])})

    def healthy() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    serve(
        {
            "check": lambda case, **more: check(case_of(case), **more),
            "clock": lambda case, **more: clock(case_of(case), **more),
        },
        healthy,
    )
