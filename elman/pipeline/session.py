"""A training run from recipe to results: prepare, train, save, resume, evaluate, speak."""

import json
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from elman.config import read_yaml
from elman.errors import CheckpointError, ConfigError
from elman.evaluation import evaluate
from elman.models import MODELS
from elman.models.stack import count_parameters
from elman.pipeline.devices import choose_device, choose_threads
from elman.pipeline.prepare import Prepared, prepare
from elman.pipeline.recipe import Recipe, read_recipe, write_recipe
from elman.pipeline.results import final_results
from elman.pipeline.sizes import fit_size
from elman.runs import Checkpoint, Metrics, Run, atomic_write, environment
from elman.training import Report, Trainer, World, joined

Listener = Callable[[Report], None]
LOGGED = ("step", "validation")  # the reports that are the same in every repetition of a run
MAY_CHANGE = {"training.max_epochs", "training.max_steps", "training.max_minutes", "training.patience", "goals", "device", "name"}


def train(
    source: str | Path | Mapping[str, Any] | Recipe | None = None,
    *,
    run: str | Path | None = None,
    resume: bool = False,
    overrides: Mapping[str, Any] | None = None,
    listeners: Iterable[Listener] = (),
) -> Iterator[Report]:
    """Train what a recipe says and yield what happens. The run folder holds all of it; `resume` goes on where it was."""
    recipe = read_recipe(source, overrides)
    with ExitStack() as stack:
        world = stack.enter_context(joined())
        session = Session(recipe, Path(run) if run else default_run(recipe), resume, world, stack)
        stack.enter_context(_orderly_interrupt(session))
        for report in session:
            for listener in listeners:
                listener(report)
            yield report


def default_run(recipe: Recipe) -> Path:
    """runs/<name>, or runs/<data>-<model> where the recipe has no name."""
    if recipe.name:
        return Path("runs") / recipe.name
    source = recipe.data.train[0] if isinstance(recipe.data.train, list) else recipe.data.train
    data = Path(source).name.partition(".")[0] if source else (recipe.data.language or {}).get("type")
    layers = "-".join(name for entry in getattr(recipe.model, "pattern", []) for name in entry)
    return Path("runs") / f"{data or 'data'}-{layers or recipe.model.type}"  # type: ignore[attr-defined]


class Session:
    """One process's part in a run; only the leader writes."""

    def __init__(self, recipe: Recipe, folder: Path, resume: bool, world: World, stack: ExitStack):
        self.world = world
        self.run, self.recipe, resuming = _open_run(recipe, folder, resume, world)
        if world.leads:
            stack.enter_context(self.run.lock())
        self.device = choose_device(self.recipe.device)
        choose_threads(self.recipe, self.device)
        self.prepared: Prepared = prepare(self.recipe, folder, world)
        self.recipe = fit_size(self.recipe, self.prepared.tokenizer.vocab_size)
        if world.leads:
            atomic_write(self.run.config, write_recipe(self.recipe).encode())
        torch.manual_seed(self.recipe.seed)
        config: Any = self.recipe.model
        self.model = MODELS[config.type](config, self.prepared.tokenizer.vocab_size)
        torch.manual_seed(self.recipe.seed + 1_000_003 * (world.rank + 1))  # each process drops other units
        self.trainer = Trainer(
            self.model,
            self.prepared.training_batches(self.recipe),
            self.recipe.training,
            device=self.device,
            world=world,
            validate=self._validate if "valid" in self.prepared.stores else None,
        )
        self.best, self.last = self.run.best, self.run.last
        self.metrics = Metrics(self.run.metrics) if world.leads else None
        self.found: Checkpoint | None = None  # the best weights that are not on disk yet
        self.notes: list[str] = self._restore() if resuming else []

    def __iter__(self) -> Iterator[Report]:
        for note in self.notes:
            yield Report("note", self.trainer.step, values={"text": note})
        for report in self.trainer:
            if report.kind == "start":
                report.values.update(self.facts())
            if report.kind == "save":
                self._save()
            if self.metrics and report.kind in LOGGED:
                self.metrics.write(report.plain())
                if report.values.get("improved"):
                    found = {"valid_loss": report.values["valid_loss"]}
                    self.found = Checkpoint(self.trainer.step, self.trainer.weights(), {}, found)
            yield report
        if self.world.leads and self.trainer.ended != INTERRUPTED:
            yield Report("result", self.trainer.step, tokens=self.trainer.tokens, values=self._finish())

    def facts(self) -> dict[str, Any]:
        """What is worth knowing before the first step."""
        stores = {split: store.facts.tokens for split, store in self.prepared.stores.items()}
        facts = {"parameters": count_parameters(self.model), "vocabulary": self.prepared.tokenizer.vocab_size}
        facts |= {"tokens": stores, "device": str(self.device), "threads": torch.get_num_threads()}
        facts |= {"run": str(self.run.folder), "repairs": self.prepared.repairs(), "processes": self.world.size}
        training = self.recipe.training
        return facts | {"layers": self.model.explain(training.batch_size, training.sequence_length)}

    def _validate(self) -> float:
        batches, context = self.prepared.evaluation_batches("valid", self.recipe, quick=True)
        return evaluate(self.model, batches, self.prepared.stores["valid"].facts, context).loss

    def _save(self) -> None:
        """The best so far, then the last: so that what is resumed never knows of a best that is lost."""
        tensors = self.trainer.tensors()
        if self.metrics:
            if self.found is not None:
                self.best.save(self.found)
                self.found = None
            facts = {"trainer": self.trainer.facts(), "metrics": self.metrics.position()}
            facts["fingerprints"] = {split: store.fingerprint for split, store in self.prepared.stores.items()}
            facts["environment"] = _exactness(self.device)
            self.last.save(Checkpoint(self.trainer.step, self.model.state_dict(), tensors, facts))

    def _restore(self) -> list[str]:
        """Go on from the newest whole checkpoint; what was noticed on the way."""
        if self.last.newest() is None:
            if self.metrics:
                self.metrics.truncate_to(0)
            return ["the run had no checkpoint yet: starting at the beginning"]
        checkpoint = self.last.load()
        self.model.load_state_dict(checkpoint.weights)
        facts = checkpoint.facts
        found = {split: store.fingerprint for split, store in self.prepared.stores.items()}
        if facts["fingerprints"] != found:
            raise CheckpointError(f"{self.run.folder}: the data has changed since the run began; start a new run")
        exact = self.trainer.restore(checkpoint.training, facts["trainer"])
        if self.metrics:
            self.metrics.truncate_to(facts["metrics"])
        notes = [*checkpoint.notes, f"going on after step {checkpoint.step}"]
        if not exact:
            notes.append("another number of processes: the order of data is kept, the rest will not be bit for bit the same")
        changed = {key for key, value in _exactness(self.device).items() if facts["environment"].get(key) != value}
        if changed:
            notes.append(f"{', '.join(sorted(changed))} changed since: the result will not be bit for bit the same")
        return notes

    def _finish(self) -> dict[str, Any]:
        if self.best.newest() is not None:
            self.model.load_state_dict(self.best.load().weights)
        results = final_results(self)
        atomic_write(self.run.folder / "results.json", json.dumps(results, indent=2, ensure_ascii=False).encode())
        return results


INTERRUPTED = "interrupted; the run can be resumed"


@contextmanager
def _orderly_interrupt(session: Session) -> Iterator[None]:
    """The first SIGINT or SIGTERM asks for an end after this step, with a checkpoint; the second acts as usual."""

    def ask(number: int, frame: Any) -> None:
        session.trainer.stop(INTERRUPTED)
        signal.signal(number, before[number])

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: signals are someone else's business
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _open_run(recipe: Recipe, folder: Path, resume: bool, world: World) -> tuple[Run, Recipe, bool]:
    if resume and (folder / "config.yaml").exists():
        stored = read_recipe(read_yaml(folder / "config.yaml"))
        return Run.open(folder), _agreed(stored, recipe), True
    if world.leads:
        Run.create(folder, write_recipe(recipe), environment())
    world.wait()
    return Run.open(folder), recipe, False


def _agreed(stored: Recipe, asked: Recipe) -> Recipe:
    """The stored recipe with the few settings changed that may change; any other difference is an error."""
    if asked == Recipe():
        return stored
    old, new = _flat(stored.plain()), _flat(asked.plain())
    if asked.parameters:
        new.pop("model.hidden_size", None)
    differing = {key for key in new if old.get(key) != new[key]}
    wrong = sorted(differing - MAY_CHANGE)
    if wrong:
        shown = "; ".join(f"{key} was {old.get(key)!r}, now {new[key]!r}" for key in wrong[:3])
        raise ConfigError(f"a resumed run keeps its settings, but {shown}; leave them out, or start another run")
    return read_recipe(stored, {key: new[key] for key in differing})


def _flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        inner = _flat(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}": value}
        flat |= inner
    return flat


def _exactness(device: torch.device) -> dict[str, Any]:
    """What must be equal for a resumed run to be equal to the bit."""
    return {"torch": torch.__version__, "device": device.type, "threads": torch.get_num_threads()}
