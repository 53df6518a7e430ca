"""Training updates to time: of the run's model by elman's updater, and of its plain PyTorch counterpart."""

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from elman.batches import Batch
from elman.bench.harness import peak_memory
from elman.bench.peer_models import NoCounterpart, TorchModel
from elman.errors import ElmanError
from elman.models import LanguageModel
from elman.pipeline.recipe import Recipe, write_recipe
from elman.pipeline.session import Session
from elman.pipeline.trained_model import TrainedModel
from elman.runs import Run
from elman.training import World
from elman.training.optimizers import make_optimizer
from elman.training.update import HALF, Updater

BATCHES = 4  # distinct batches
ROUND_SECONDS = 0.2  # an update is repeated until a round takes about as long
NOT_COPIED = ("best", "last", "plots", "samples", "lock", "metrics.jsonl", "results.json")


class Work(NamedTuple):
    variants: dict[str, Callable[[], None]]  # each call makes `about["updates"]` updates
    units: int  # tokens or texts in one call
    about: dict[str, Any]
    lines: list[Any]  # texts of the run's data, inputs of `predict`
    peak_memory_bytes: int  # of optimizer and first updates


class _Source(NamedTuple):
    model: nn.Module
    training: Any
    batches: list[Any]
    about: str
    lines: list[Any]


def training_work(trained: TrainedModel, run: Path, device: torch.device, texts: int) -> Work:
    """Updates of a new model on the run's own batches; a language model whose data is gone gets random tokens.

    Raises an ElmanError if there are no batches. The run folder is only read.
    """
    try:
        source = _own_data(trained, run, device, texts)
    except (ElmanError, OSError):
        if not isinstance(trained.model, LanguageModel):
            raise
        source = _random_tokens(trained, device)
    training, batches = source.training, source.batches
    rate = training.learning_rate or 1e-3
    with peak_memory(device) as peak:
        updater = Updater(source.model, training, device, World())
        for batch in batches[:2]:
            updater(batch, rate)
        _wait(device)
    variants: dict[str, Callable[[Any], None]] = {"elman": lambda batch: updater(batch, rate)}
    began = time.perf_counter()
    updater(batches[0], rate)
    _wait(device)
    count = max(1, min(50, round(ROUND_SECONDS / (time.perf_counter() - began))))
    chosen = [batches[number % len(batches)] for number in range(count)]
    tokens = isinstance(batches[0], Batch)
    with suppress(NoCounterpart):  # RunSpeed reports it
        if tokens:
            variants["plain torch"] = _torch_update(TorchModel(source.model), training, rate, device)

    def repeated(update: Callable[[Any], None]) -> Callable[[], None]:
        def work() -> None:
            with updater.matmul_precision():  # of the recipe, for every variant
                for batch in chosen:
                    update(batch)
                _wait(device)

        return work

    size = f"{batches[0].size} x {batches[0].inputs.shape[1]}" if tokens else str(batches[0].size)
    about: dict[str, Any] = {"unit": "tokens" if tokens else trained.task.unit, "data": source.about}
    about |= {"batch": size, "precision": training.precision, "updates": count}
    units = sum(batch.real if tokens else batch.size for batch in chosen)
    work = {name: repeated(update) for name, update in variants.items()}
    return Work(work, units, about, source.lines, peak.bytes)


def _own_data(trained: TrainedModel, run: Path, device: torch.device, texts: int) -> _Source:
    """Model and batches of a session that begins in a copy of the run folder without its weights."""
    changes: dict[str, Any] = {"device": device.type, "start_from": Recipe.model_fields["start_from"].default}
    recipe = trained.recipe.model_copy(update=changes)
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place) / "run"
        shutil.copytree(run, folder, ignore=shutil.ignore_patterns(*NOT_COPIED))
        own = Run(folder)
        own.manifest.write(own.config.name, write_recipe(recipe).encode())
        session = Session(recipe, folder, True, World(), stack)
        prepared: Any = session.prepared
        batches = [batch.to(device) for batch in itertools.islice(session.trainer.batches.epoch(0, 0), BATCHES)]
        lines: list[Any] = []
        if hasattr(prepared.task, "questions"):
            split = next(name for name in ("test", "valid", "train") if name in prepared.stores)
            questions = prepared.task.questions(prepared.corpus, split)
            lines = [line for line, *_ in itertools.islice(questions, texts)]
        return _Source(session.model, session.trainer.config, batches, "the run's data", lines)


def _random_tokens(trained: TrainedModel, device: torch.device) -> _Source:
    recipe = trained.recipe
    model, batches = trained.task.build(recipe.model).to(device), []
    for _ in range(BATCHES):
        shape = recipe.training.batch_size, recipe.training.sequence_length + 1
        tokens = torch.randint(model.vocab_size, shape, device=device)
        batches.append(Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), None, fresh=False))
    return _Source(model, recipe.training, batches, "random tokens", [])


def _torch_update(model: TorchModel, training: Any, rate: float, device: torch.device) -> Callable[[Batch], None]:
    """An update as written with torch alone: all logits at once, cross-entropy, clipping, the recipe's optimizer."""
    model.train()
    optimizer = make_optimizer(model, training)
    for group in optimizer.param_groups:
        group["lr"] = rate
    half = HALF.get(training.precision)
    scaler = torch.amp.GradScaler(device.type, enabled=training.precision == "fp16")
    carried: list[Any] = []

    def update(batch: Batch) -> None:
        optimizer.zero_grad()
        carry = carried and not batch.fresh and carried[0][0].shape[1] == batch.size
        with torch.autocast(device.type, half) if half else nullcontext():
            # (h, c) of nn.LSTM; nn.GRU and nn.RNN take h alone
            before = [state if len(state) > 1 else state[0] for state in carried] if carry else None
            logits, states = model(batch.inputs, before)
            mask = batch.mask()
            loss = F.cross_entropy(logits[mask], batch.targets[mask])
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), training.clip_grad_norm or float("inf"))
        scaler.step(optimizer)
        scaler.update()
        parts = [state if isinstance(state, tuple) else (state,) for state in states]
        carried[:] = [tuple(part.detach() for part in state) for state in parts]

    return update


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
