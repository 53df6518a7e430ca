"""The models of a server: loaded on demand within a memory budget, unloaded when unused, reloaded when trained on."""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from elman.errors import ConfigError, ElmanError, RunError
from elman.runs import Run
from elman.serving.errors import ApiError, unknown_model
from elman.serving.settings import ServeConfig

if TYPE_CHECKING:
    from elman.pipeline import TrainedModel
    from elman.pipeline.tasks import Task

LOG = logging.getLogger("elman.serving")
OWNER = "elman"  # of all models, in lists


class Worker(Protocol):
    """What computes with a model in a thread of its own, such as a scheduler of generation."""

    @property
    def running(self) -> int:
        """Requests being computed."""

    @property
    def waiting(self) -> int:
        """Requests in its queue."""

    def close(self) -> None:
        """Ends the thread; what still waits gets an error."""


Made = TypeVar("Made", bound=Worker)


class ServedModel:
    """A loaded model, and the workers that compute with it."""

    def __init__(self, id: str, trained: "TrainedModel", created: int, settings: ServeConfig, version: str = ""):
        self.id, self.trained, self.created, self.settings = id, trained, created, settings
        self.version = version
        """Name of the checkpoint."""
        self.users = 0
        """Requests that hold it."""
        self.lock = threading.Lock()
        self._workers: dict[Any, Worker] = {}

    def worker(self, make: "Callable[[ServedModel], Made]") -> Made:
        """The worker that `make(self)` creates on first use; closed with the model."""
        with self.lock:
            if make not in self._workers:
                self._workers[make] = make(self)
            return self._workers[make]  # type: ignore[return-value]

    def made(self, make: "Callable[[ServedModel], Made]") -> Made | None:
        """The worker that `worker` has created."""
        return self._workers.get(make)  # type: ignore[return-value]

    def set_threads(self) -> None:
        """Sets the number of CPU threads that the calling thread computes with; each thread has its own."""
        import torch

        from elman.evaluation.inference_mode import device_of
        from elman.pipeline.devices import choose_threads

        if self.settings.threads:
            torch.set_num_threads(self.settings.threads)
        else:
            choose_threads(self.trained.recipe, device_of(self.trained.model))

    @property
    def load(self) -> tuple[str, int, int]:
        """Its id, the requests being computed, and those that wait."""
        workers = list(self._workers.values())
        return self.id, sum(one.running for one in workers), sum(one.waiting for one in workers)

    def close(self) -> None:
        with self.lock:
            workers, self._workers = list(self._workers.values()), {}
        for worker in workers:
            worker.close()


class Entry:
    """A model that may be asked for, loaded or not."""

    def __init__(self, id: str, place: Path, task: "type[Task]", trained: "TrainedModel | None" = None):
        self.id, self.place, self.task, self.trained = id, place, task, trained
        self.pinned = trained is not None
        """It was given as an object, so that there may be nothing to load it from again."""
        self.bytes = 0 if trained else checkpoint_bytes(place)
        self.created = int(checkpoint_of(place).stat().st_mtime) if not trained else int(time.time())
        self.served: ServedModel | None = None
        self.used = 0.0


class ModelPool:
    """Models by id. `use` gives one that stays loaded while it is used."""

    def __init__(self, models: "Iterable[str | Path | TrainedModel]", settings: ServeConfig):
        self.settings = settings
        self.budget = settings.memory_bytes()
        self._entries = {entry.id: entry for entry in entries_of(list(models))}
        self._retired: set[ServedModel] = set()
        self._loading = asyncio.Lock()  # one model after another, so that the budget holds
        self.ready = False

    @property
    def ids(self) -> list[str]:
        return list(self._entries)

    @property
    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def entry(self, id: str) -> Entry:
        if id not in self._entries:
            raise unknown_model(id, self.ids)
        return self._entries[id]

    @asynccontextmanager
    async def use(self, id: str) -> AsyncIterator[ServedModel]:
        """A model, loaded if it is not, that is not unloaded inside of the block."""
        entry = self.entry(id)
        served = await self._held(entry)
        try:
            yield served
        finally:
            served.users -= 1
            entry.used = time.monotonic()
            if served in self._retired and not served.users:
                self._retired.discard(served)
                await asyncio.to_thread(served.close)

    async def preload(self) -> None:
        """Loads what fits into memory together; then the server is ready."""
        total = 0
        for entry in self.entries:
            total += entry.bytes
            if total <= self.budget:
                (await self._held(entry)).users -= 1
        self.ready = True

    async def _held(self, entry: Entry) -> ServedModel:
        if entry.served is None:
            async with self._loading:
                if entry.served is None:
                    await self._make_room(entry)
                    entry.served = await self._load(entry)
        entry.used = time.monotonic()
        entry.served.users += 1
        return entry.served

    async def _make_room(self, entry: Entry) -> None:
        """Unloads models that nobody uses, the least recently used first, until this one fits."""
        while entry.bytes + sum(one.bytes for one in self.entries if one.served) > self.budget:
            idle = [one for one in self.entries if one.served and not one.served.users and not one.pinned]
            if not idle:
                message = f"model {entry.id!r} does not fit into memory beside those in use; try again later"
                raise ApiError(503, message, code="out_of_memory", headers={"Retry-After": "10"})
            await self._unload(min(idle, key=lambda one: one.used))

    async def _unload(self, entry: Entry) -> None:
        served, entry.served = entry.served, None
        if served is not None:
            LOG.info("unloaded", extra={"data": {"model": entry.id}})
            await asyncio.to_thread(served.close)

    async def _load(self, entry: Entry) -> ServedModel:
        begun = time.monotonic()
        try:
            served = await asyncio.to_thread(self._load_here, entry)
        except ElmanError as error:
            LOG.error("cannot load", extra={"data": {"model": entry.id, "error": str(error)}})
            raise ApiError(503, f"model {entry.id!r} cannot be loaded; the server's log says why") from error
        seconds = round(time.monotonic() - begun, 3)
        LOG.info("loaded", extra={"data": {"model": entry.id, "checkpoint": served.version, "seconds": seconds}})
        return served

    def _load_here(self, entry: Entry) -> ServedModel:
        if entry.trained is not None:
            return ServedModel(entry.id, entry.trained, entry.created, self.settings)
        from elman.pipeline.trained_model import load

        version = checkpoint_of(entry.place)
        trained = load(version, self.settings.device)
        return ServedModel(entry.id, trained, int(version.stat().st_mtime), self.settings, version.name)

    async def reload(self) -> list[str]:
        """Loads again the models whose run has another best checkpoint; the requests that run end with the old one."""
        changed = []
        for entry in self.entries:
            served = entry.served
            if served is None or entry.pinned or checkpoint_of(entry.place).name == served.version:
                continue
            async with self._loading:
                entry.served = fresh = await self._load(entry)
            entry.bytes, entry.created = checkpoint_bytes(entry.place), fresh.created
            changed.append(entry.id)
            if served.users:
                self._retired.add(served)
            else:
                await asyncio.to_thread(served.close)
        return changed

    def loads(self) -> list[tuple[str, int, int]]:
        """(model, requests running, requests waiting) of each loaded model."""
        return [entry.served.load for entry in self.entries if entry.served]

    async def close(self) -> None:
        for entry in self.entries:
            await self._unload(entry)
        for served in self._retired:
            await asyncio.to_thread(served.close)
        self._retired.clear()


def entries_of(models: "Sequence[str | Path | TrainedModel]") -> list[Entry]:
    """Entries under the names of the run folders, with those of their parents where these are the same."""
    from elman.pipeline.recipe import stored_recipe
    from elman.pipeline.trained_model import TrainedModel

    if not models:
        raise ConfigError("there is nothing to serve: name one run or more")
    places = [Path(one.run or one.task.name) if isinstance(one, TrainedModel) else Path(one) for one in models]
    entries = []
    for id, place, model in zip(distinct_names(places), places, models, strict=True):
        if isinstance(model, TrainedModel):
            entries.append(Entry(id, place, type(model.task), model))
        else:
            entries.append(Entry(id, place, stored_recipe(Run.open(place)).task_class))
    return entries


def distinct_names(places: Sequence[Path]) -> list[str]:
    """The last parts of each path, as many as make all names differ."""
    parts = [place.absolute().parts[1:] or (place.name,) for place in places]
    double = [place for place, count in Counter(parts).items() if count > 1]
    if double:
        raise ConfigError(f"{Path(*double[0]).name}: given twice; serve each run once")
    names = []
    for own in parts:
        sizes = range(1, len(own) + 1)
        size = next((n for n in sizes if sum(own[-n:] == other[-n:] for other in parts) == 1), len(own))
        names.append("/".join(own[-size:]).encode("utf-8", "replace").decode())
    return names


def checkpoint_of(place: Path) -> Path:
    """The checkpoint of a run that is served: the newest of the best ones."""
    run = Run.open(place)
    found = run.chosen or run.shelf.newest()
    if found is None:
        raise RunError(f"{place}: has no checkpoint yet; train it first, or wait for its first save")
    return found


def checkpoint_bytes(place: Path) -> int:
    """The size of its files, which that in memory is close to."""
    return sum(path.stat().st_size for path in checkpoint_of(place).iterdir())
