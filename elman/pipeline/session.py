"""A training run from recipe to results: prepare, train, save checkpoints, resume, evaluate."""

import json
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from elman.errors import ConfigError, ElmanError
from elman.files import discard
from elman.layers.laws import agree, examine, sources
from elman.models import prediction_of
from elman.models.stack import count_parameters
from elman.pipeline.devices import choose_device, choose_threads
from elman.pipeline.prepare import prepare
from elman.pipeline.progress import Progress
from elman.pipeline.recipe import Recipe, read_recipe, stored_recipe, write_recipe
from elman.pipeline.results import final_results
from elman.pipeline.resume import CHOSEN, agreed, kept_widths, source_of
from elman.pipeline.samples import Samples
from elman.pipeline.sizes import fit_size, size_notes
from elman.pipeline.tasks.base import check_metric, data_changed
from elman.pipeline.tasks.position_checks import order_warning
from elman.pipeline.tasks.pretrained_vectors import use_vectors
from elman.pipeline.trained_model import TrainedModel, load
from elman.processes import HANGUP, stop_signals, tell, under_torchrun
from elman.runs import Checkpoint, MetricsLog, Run, environment
from elman.runs.checkpoint import usable_facts
from elman.runs.run import HAS_MANIFEST
from elman.training import CountTrainer, Report, Trainer, Validation, World, joined
from elman.training.learning_rates import suggested_rate_notes
from elman.training.loop import INTERRUPTED

Listener = Callable[[Report], None]
LOGGED = ("step", "validation")  # reports that are deterministic


def train(
    source: str | Path | Mapping[str, Any] | Recipe | None = None,
    *,
    run: str | Path | None = None,
    resume: bool = False,
    overrides: Mapping[str, Any] | None = None,
    listeners: Iterable[Listener] = (),
    progress: bool = True,
) -> TrainedModel:
    """Train a recipe to its end and return the best model, with its scores in `.results`.

    Everything is written to the run folder; `resume` continues from there and needs no recipe. With `progress`, losses
    and scores are shown on stderr as they come; `iterate` gives every report instead. A training that a signal ends
    early has saved a checkpoint and raises KeyboardInterrupt.
    """
    last: dict[str, Report] = {}
    with Progress() if progress else nullcontext() as shown:
        heard: list[Listener] = [*listeners, *([shown] if isinstance(shown, Progress) else [])]
        for report in iterate(source, run=run, resume=resume, overrides=overrides, listeners=heard):
            last[report.kind] = report
    folder = last["start"].values["run"]
    if last["end"].values["reason"] == INTERRUPTED:
        step = last["end"].step
        raise KeyboardInterrupt(
            f"interrupted after step {step}; continue with elman.train(run={folder!r}, resume=True)"
        )
    return load(folder, torch.device(last["start"].values["device"]).type)


def iterate(
    source: str | Path | Mapping[str, Any] | Recipe | None = None,
    *,
    run: str | Path | None = None,
    resume: bool = False,
    overrides: Mapping[str, Any] | None = None,
    listeners: Iterable[Listener] = (),
) -> Iterator[Report]:
    """Train a recipe as `train` does and yield its reports, a checkpoint before the validation that it is of.

    The loop may be left at any report; `resume` continues from the last checkpoint. Of several processes only rank 0
    calls listeners and yields a result.
    """
    chosen = source_of(source, run, resume)
    known = kept_widths(run, resume)
    recipe = read_recipe(chosen, {**known, **(overrides or {})}, complete=chosen is not source)
    with ExitStack() as stack:
        world = stack.enter_context(joined())
        session = Session(recipe, Path(run) if run else default_run(recipe), resume, world, stack)
        stack.enter_context(_orderly_interrupt(session))
        for report in session:
            if world.leads:
                for listener in listeners:
                    listener(report)
            yield report


def default_run(recipe: Recipe) -> Path:
    """runs/<name>, or runs/<data>-<model> where the recipe has no name."""
    if recipe.name:
        return Path("runs") / recipe.name
    source = recipe.data.train[0] if isinstance(recipe.data.train, list) else recipe.data.train
    data = Path(source).name.partition(".")[0] if source else (recipe.data.language or {}).get("type")
    return Path("runs") / f"{data or 'data'}-{recipe.task_class.run_name(recipe.model)}"


class Session:
    """A run in one process; of several only the leader writes files."""

    saved = interrupted = False  # once training has ended, and whether by a stop signal to any process

    def __init__(self, recipe: Recipe, folder: Path, resume: bool, world: World, stack: ExitStack):
        self.world, self.run = world, Run(folder)
        resuming = bool(world.from_leader(resume and self.run.config.exists()))
        if not resuming:
            world.lead(lambda: Run.create(folder, write_recipe(recipe), environment()))
        world.lead(lambda: stack.enter_context(self.run.lock()))
        try:
            if resuming:
                world.lead(self.run.adopt)
                self.run.manifest.check()
                world.lead(lambda: self.run.manifest.forget(self.run.metrics.name))
            self._prepare(agreed(stored_recipe(self.run), recipe) if resuming else recipe)
            self.notes += self._restore() if resuming else []
        except Exception:
            if world.leads and not resuming:
                discard(folder)  # nothing was trained: leave no folder in the way of the next attempt
            raise

    def _prepare(self, recipe: Recipe) -> None:
        world, folder = self.world, self.run.folder
        self.device = choose_device(recipe.device)
        choose_threads(recipe, self.device)
        self.prepared = world.leader_first(lambda: prepare(recipe, folder))
        task = self.prepared.task
        self.recipe = fit_size(recipe, task.build)
        torch.manual_seed(self.recipe.seed)
        task.outline(self.recipe.model)  # rejects what does not fit in memory
        self.model = task.build(self.recipe.model)
        self.lawful = examine(self.model)
        if (metric := recipe.evaluation.choose_by) != "loss":
            unavailable = task.unavailable_metrics(self.model, self.prepared)
            check_metric(metric, task.metrics, "this data", unavailable)
        new = self.run.last.empty
        self.notes = [task.warm_start(self.model, self.recipe)] if self.recipe.start_from and new else []
        self.notes += use_vectors(task, self.model, self.recipe.model.plain(), self.prepared.stores["train"], new)
        torch.manual_seed(self.recipe.seed + 1_000_003 * (world.rank + 1))  # other dropout masks in each process
        batches, training = task.training_batches(self.prepared, self.recipe), self.recipe.training
        validate = self._validate if "valid" in self.prepared.stores else None
        if recipe.evaluation.calibrate and not validate:
            raise ConfigError(
                "evaluation.calibrate needs validation data: give --valid, or data.valid_fraction above 0"
            )
        trainer_class: Any = CountTrainer if getattr(self.model, "fits_by_counting", False) else Trainer
        self.trainer = trainer_class(self.model, batches, training, device=self.device, world=world, validate=validate)
        # config.yaml holds what was chosen, so that a later version cannot resume the run at another rate
        chosen = training.model_copy(update={key: getattr(self.trainer.config, key) for key in CHOSEN})
        self.recipe = self.recipe.model_copy(update={"training": chosen})
        world.lead(lambda: self.run.manifest.write("config.yaml", write_recipe(self.recipe).encode()))
        self.samples = Samples(self.run.samples)
        self.best, self.last = self.run.best, self.run.last
        self.metrics = MetricsLog(self.run.metrics) if world.leads else None
        self.notes += size_notes(recipe, self.model)
        self.notes += order_warning(self.model)
        self.notes += suggested_rate_notes(training, self.trainer.config)
        self.notes += task.notes(batches, self.prepared, self.recipe)
        self.notes += task.length_warnings(self.model, self.prepared, self.recipe)

    def __iter__(self) -> Iterator[Report]:
        for note in self.notes:
            yield Report("note", self.trainer.step, values={"text": note})
        for report in self.trainer:
            if report.kind == "start":
                report.values.update(self.describe())
            if report.kind == "save":
                tensors = self.trainer.tensors()  # of all processes
                self.world.lead(partial(self._save, tensors))
            if report.values.get("improved"):
                self.world.lead(partial(self._save_best, report.values["valid_loss"]))
            if self.metrics and report.kind in LOGGED:
                self.metrics.write(report.plain())
            if report.kind == "end":
                self.saved = True  # before looking for a signal: one that comes later ends the process itself
                self.interrupted = INTERRUPTED in (self.trainer.asked, self.trainer.ended)
                report.values["reason"] = INTERRUPTED if self.interrupted else self.trainer.ended
            yield report
            if report.kind == "validation" and (texts := self.samples.pop()):
                yield replace(report, kind="sample", values={"texts": texts}, weights=self._weights)
        if self.world.leads and not self.interrupted:
            yield Report("result", self.trainer.step, tokens=self.trainer.tokens, values=self._finish())

    def describe(self) -> dict[str, Any]:
        """What the first report says of the run."""
        task = self.prepared.task
        sizes = {split: task.size(store) for split, store in self.prepared.stores.items()}
        about: dict[str, Any] = {
            "parameters": count_parameters(self.model),
            "task": task.name,
            **task.describe_vocabulary(),
        }
        about |= {
            "sizes": sizes,
            "unit": task.unit,
            "speed_unit": task.speed_unit(self.recipe),
            "prediction": prediction_of(self.model),
        }
        about |= {"device": str(self.device), "threads": torch.get_num_threads()}
        about |= {"run": str(self.run.folder), "repairs": self.prepared.repairs(), "processes": self.world.size}
        return about | {"layers": explain(self.model, self.recipe)}

    def _validate(self) -> Validation:
        """Of the averaged weights, where there are such; so is the sample."""
        found = self.prepared.task.validate(self.model, self.prepared, self.recipe)
        if self.samples.due(self.trainer.step):
            with suppress(ElmanError):  # of outputs that are NaN, say: training reports that itself
                self.samples.add(self.trainer.step, self._sample())
        return found

    def _sample(self) -> list[str]:
        return self.prepared.task.samples(self.model, self.prepared, self.recipe, quick=True)

    def _weights(self) -> Mapping[str, torch.Tensor]:
        return dict(self.model.named_parameters())

    def _save_best(self, loss: float) -> None:
        """At once, before it is reported and before the last: a resumed run must not refer to a best one that is
        lost."""
        facts = {"valid_loss": loss, **HAS_MANIFEST}
        self.best.save(Checkpoint(self.trainer.step, self.trainer.weights(), {}, facts))

    def _save(self, tensors: dict[str, torch.Tensor]) -> None:
        assert self.metrics is not None
        facts = {"trainer": self.trainer.facts(), "metrics": list(self.metrics.position())}
        facts |= {"fingerprints": self.prepared.fingerprints(), "environment": _exactness(self.device)}
        facts |= {"sources": sources(self.model), **HAS_MANIFEST}
        self.last.save(Checkpoint(self.trainer.step, self.model.state_dict(), tensors, facts))

    def _restore(self) -> list[str]:
        """Continue from the newest complete checkpoint; returns notes."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            checkpoint = None if self.last.empty else self.last.load()
        notes = [str(warning.message) for warning in caught]
        if checkpoint is None:
            if self.metrics:
                self.metrics.truncate_to(0)
            return [*notes, "the run had no checkpoint yet: starting at the beginning"]
        facts = checkpoint.facts
        with usable_facts(self.last.folder):
            if facts["fingerprints"] != self.prepared.fingerprints():
                raise data_changed(self.run.folder)
            code, before = dict(facts.get("sources", {})), dict(facts["environment"])
        agree(code, sources(self.model), "run")
        with usable_facts(self.last.folder):
            checkpoint.load_into(self.model, self.run.folder)
            exact = self.trainer.restore(checkpoint.training, facts["trainer"])
            if self.trainer.step != checkpoint.step:
                raise ValueError(f"trainer.step is {self.trainer.step}, but the checkpoint is of {checkpoint.step}")
            if self.metrics:
                self.metrics.truncate_to(facts["metrics"])
        notes.append(f"going on after step {checkpoint.step}")
        if not exact:
            notes.append(
                "another number of processes: the order of data is kept, the rest will not be bit for bit the same"
            )
        different = {key for key, value in _exactness(self.device).items() if before.get(key) != value}
        if different:
            notes.append(f"{', '.join(sorted(different))} changed since: the result will not be bit for bit the same")
        return notes

    def _finish(self) -> dict[str, Any]:
        calibration = None
        if not self.best.empty:
            best = self.best.load()
            best.load_into(self.model, self.run.folder)
            calibration = self._calibrate(best) if self.recipe.evaluation.calibrate else None
        results = final_results(self)
        if calibration:
            results["calibration"] = calibration
            results["notes"] = [*results.get("notes", []), _calibration_note(calibration)]
        self.run.manifest.record(self.run.metrics.name)
        self.run.manifest.write("results.json", json.dumps(results, indent=2, ensure_ascii=False).encode())
        return results

    def _calibrate(self, best: Checkpoint) -> dict[str, Any]:
        """Once for each best checkpoint, which is saved again with the calibrated weights."""
        if "calibration" not in best.facts:
            found = self.prepared.task.calibrate(self.model, self.prepared, self.recipe)
            best = Checkpoint(best.step, self.model.state_dict(), {}, {**best.facts, "calibration": found})
            self.best.save(best)
        return best.facts["calibration"]


def _calibration_note(found: Mapping[str, Any]) -> str:
    if found["temperature"] == 1:
        return "valid: not calibrated: all answers are right, which does not say how sure they may be"
    before, after = found["before"], found["after"]
    changes = (f"{name.replace('_', ' ')} {before[name]:.4f} before, {after[name]:.4f} after" for name in after)
    return f"valid: calibrated with temperature {found['temperature']:.3f}: {'; '.join(changes)}"


def explain(model: Any, recipe: Recipe) -> list[str]:
    """Which implementation runs each layer, for models with `explain`."""
    size = recipe.training.batch_size, recipe.training.sequence_length
    return model.explain(*size) if hasattr(model, "explain") else _explain_layers(model, *size)


def _explain_layers(model: Any, batch: int, time: int) -> list[str]:
    """For models of examples, whose rows have unequal lengths: every layer in the module tree."""
    if hasattr(model, "explain"):
        lines = model.explain(batch, time, ragged=True)
        return [lines] if isinstance(lines, str) else lines
    return [line for part in model.children() for line in _explain_layers(part, batch, time)]


@contextmanager
def _orderly_interrupt(session: Session) -> Iterator[None]:
    """The first stop signal ends training after this step, with a checkpoint; the second acts as usual.

    Not under torchrun, which may pass a signal on twice or late, and itself kills processes that take too long.
    """
    insists = not under_torchrun()

    def ask(number: int, frame: Any) -> None:
        if session.saved:
            if insists or not session.interrupted:
                signal.signal(number, before[number])
                signal.raise_signal(number)
            return
        if number != HANGUP and insists:
            signal.signal(number, before[number])
        session.trainer.stop()
        if session.world.leads:  # not by print: the interrupted code may be inside one
            tell("stopping after this step, with a checkpoint" + insists * "; once more stops at once")

    with stop_signals(ask) as before:
        yield
        if session.interrupted and not insists:
            before.update(dict.fromkeys(before, signal.SIG_IGN))  # this process ends, but first says how to resume


def _exactness(device: torch.device) -> dict[str, Any]:
    """What must be equal for a resumed run to be bit-identical."""
    return {"torch": torch.__version__, "device": device.type, "threads": torch.get_num_threads()}
