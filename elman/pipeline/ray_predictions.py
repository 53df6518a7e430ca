"""Predicts a file on a Ray cluster: this process reads records and writes parts, workers answer a part at a time.

records ─▶ parts that are not there yet ─▶ workers, each with the model ─▶ contents, in order ─▶ OUT.parts ─▶ OUT

A part is answered as it is on one machine, so the file is the same, and either can go on where the other stopped.
"""

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import torch

from elman import files
from elman.batches.groups import groups
from elman.corpus.config import Names, Record, Table
from elman.corpus.document import Repairs
from elman.corpus.record_writers import RecordWriter
from elman.corpus.source_reader import SourceReader
from elman.corpus.sources import Source
from elman.errors import ElmanError, RunError
from elman.pipeline.predict_tables import PART_RECORDS, Progress, TablePrediction
from elman.pipeline.trained_model import load
from elman.ray_cluster import accelerators, connect, cores

AHEAD = 2  # parts that each worker has or waits for
LOSSES = 5  # of one worker, and for one part, until it is an error

Content = tuple[bytes, dict[str, Any]]
"""A part of the file, and the task's counts of its records."""


class Head(NamedTuple):
    """What is known of the input before its records."""

    source: Source
    form: str
    names: Names
    schema: Any


class RayPrediction(TablePrediction):
    """`runs` are the model and the others of an ensemble; `prepare` registers what users have added."""

    def __init__(
        self, address: str, runs: Sequence[Path], device: str, prepare: Callable[[], None], *job: Any, **settings: Any
    ):
        super().__init__(*job, **settings)
        self.address, self.runs, self.device, self.prepare = address, runs, device, prepare

    def _write_parts(self, folder: Path, writer: RecordWriter, parts: list[Path], progress: Progress) -> int:
        done, expected = 0, deque[tuple[Path, int]]()

        def missing() -> Iterator[tuple[int, list[Record]]]:
            nonlocal done
            for number, group in enumerate(groups(self._table.records, PART_RECORDS)):
                parts.append(folder / self._part_name(number, writer, group))
                if parts[-1].exists():
                    done += len(group)
                else:
                    expected.append((parts[-1], len(group)))
                    yield number, group

        for content, counts in self._contents(writer.name, missing()):
            path, size = expected.popleft()
            files.atomic_write(path, content)
            add_counts(self.model.task, counts)
            done += size
            progress(done, self._reader.share_read)
        for note in self.model.task.pop_warnings():
            warnings.warn(note, stacklevel=2)
        return done

    def _contents(self, to: str, parts: Iterator[tuple[int, list[Record]]]) -> Iterator[Content]:
        """Of each part in order; some are ahead of it."""
        ray = connect(self.address, "predicting on a cluster of Ray")
        try:
            workers = self._workers(ray, to)
            running = deque[Any]()
            for turn, (number, group) in enumerate(parts):
                if len(running) >= AHEAD * len(workers):
                    yield self._result(ray, running.popleft())
                worker, first = workers[turn % len(workers)], number * PART_RECORDS
                running.append(worker.part.remote(first, PART_RECORDS, group))
            while running:
                yield self._result(ray, running.popleft())
        finally:
            ray.shutdown()

    def _workers(self, ray: Any, to: str) -> list[Any]:
        """One for each accelerator, or for as many cores as this process uses; a lost one is replaced."""
        gpus = accelerators(ray) if self.device in ("auto", "cuda") else 0
        threads = torch.get_num_threads()  # sums depend on their number
        made = (self.prepare, self.runs, self.device, threads, self.settings(to), self.head)
        options = {"num_cpus": threads, "num_gpus": bool(gpus), "max_restarts": LOSSES}
        options["max_task_retries"] = LOSSES
        actor = ray.remote(PartWorker).options(scheduling_strategy="SPREAD", **options)
        count = gpus or max(1, cores(ray) // threads)
        return [actor.remote(*made) for _ in range(count)]

    def settings(self, to: str) -> dict[str, Any]:
        """Of a job with the same answers, written in this format."""
        own = {one.name: getattr(self, one.name) for one in fields(TablePrediction) if one.init}
        return {**own, "model": None, "to": to}

    @property
    def head(self) -> Head:
        return Head(self._reader.source, self._form, self._table.names, self._table.schema)

    @staticmethod
    def _result(ray: Any, reference: Any) -> Content:
        try:
            found = ray.get(reference)
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise RunError(f"the workers of the cluster cannot predict: {reason}") from None
        if isinstance(found, ElmanError):
            raise found
        return found


class PartWorker:
    """A process of the cluster with the model. Errors of users are answers, since Ray would wrap what is raised."""

    def __init__(
        self,
        prepare: Callable[[], None],
        runs: Sequence[Path],
        device: str,
        threads: int,
        settings: dict[str, Any],
        head: Head,
    ):
        prepare()
        first, *others = runs
        self.job = TablePrediction(**{**settings, "model": load(first, device, others)})
        torch.set_num_threads(threads)
        self.job.__dict__ |= {  # what would be read from the file
            "_form": head.form,
            "_reader": SourceReader(head.source, self.job.model.recipe.data, Repairs()),
            "_table": Table(head.names, iter(()), head.schema),
        }
        self.writer = self.job._writer(str(self.job.to))
        self.job.model.task.pop_warnings = list  # type: ignore[method-assign]  # the process that reads tells of them

    def part(self, first: int, size: int, records: list[Record]) -> Content | ElmanError:
        """The answers for the records from the one of that number on; parts have a `size`, but for the last one."""
        try:
            rows = [*self.job._answered(iter(records), first, size)]
            return self.writer.part(rows), pop_counts(self.job.model.task)
        except ElmanError as error:
            return error


def pop_counts(task: Any) -> dict[str, Any]:
    """What it counted since the last call."""
    found = {name: getattr(task, name) for name in task.counts}
    for name, value in found.items():
        setattr(task, name, type(value)())
    return found


def add_counts(task: Any, found: dict[str, Any]) -> None:
    for name, value in found.items():
        setattr(task, name, getattr(task, name) + value)
