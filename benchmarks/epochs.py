"""Whole epochs of a recurrent recipe: `elman train` against the same model in plain torch, on the same batches.

    python -m benchmarks.epochs [--recipe recipes/wikitext2-lstm.yaml] --epochs 6 [--training.precision bf16]

Both start from the same weights, with the same learning rates and order of data; only dropout masks differ. The time of
an epoch includes batches, updates and the validation at its end. Both perplexities are computed by the same code. The
first epoch, in which kernels are compiled and graphs captured, is reported separately.
"""

import argparse
import math
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import elman
from benchmarks.recipe_update import Plain
from benchmarks.reporting import write
from elman.config import parse_overrides
from elman.files import make_folder
from elman.models import LanguageModel
from elman.pipeline import read_recipe
from elman.pipeline.devices import choose_device
from elman.pipeline.prepare import prepare
from elman.training.learning_rates import learning_rate

RECIPE = "recipes/wikitext2-lstm.yaml"
HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}


def ours(recipe: Any, folder: Path) -> Iterator[tuple[float, float]]:
    """Seconds and validation loss of each epoch."""
    began = time.perf_counter()
    with closing(elman.iterate(recipe, run=folder / "ours")) as reports:
        for report in reports:
            if report.kind == "start":
                began = time.perf_counter()
            if report.kind == "validation":
                now = time.perf_counter()
                yield now - began, report.values["valid_loss"]
                began = now


def theirs(recipe: Any, folder: Path) -> Iterator[tuple[float, float]]:
    """The same of a loop as one writes it with torch alone."""
    make_folder(folder / "theirs" / "data")
    prepared = prepare(recipe, folder / "theirs")
    task, training, device = prepared.task, recipe.training, choose_device(recipe.device)
    torch.manual_seed(recipe.seed)
    twin = task.build(recipe.model)
    model = Plain(twin).to(device)
    twin.to(device)
    torch.set_float32_matmul_precision("highest" if training.precision == "fp32" else "high")
    half = HALF.get(training.precision)
    optimizer = torch.optim.SGD(model.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay)
    scaler = torch.amp.GradScaler(device.type, enabled=training.precision == "fp16")
    batches = task.training_batches(prepared, recipe)
    total = sum(batches.length_of(epoch) for epoch in range(training.max_epochs))
    step = 0
    for epoch in range(training.max_epochs):
        began = time.perf_counter()
        model.train()
        states: list[Any] = [None] * len(model.layers)
        for batch in batches.epoch(epoch):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(training, step, total)
            inputs, targets = batch.inputs.to(device), batch.targets.to(device)
            optimizer.zero_grad()
            with torch.autocast(device.type, half) if half else nullcontext():
                logits, states = model(inputs, states)
                loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), training.clip_grad_norm)
            scaler.step(optimizer)
            scaler.update()
            step += 1
        _validate(model, prepared, recipe, device, half)
        seconds = time.perf_counter() - began
        copy_weights_back(model, twin)
        yield seconds, task.validate(twin.eval(), prepared, recipe).loss


@torch.no_grad()
def _validate(model: Plain, prepared: Any, recipe: Any, device: torch.device, half: torch.dtype | None) -> float:
    """In as many lanes as a batch has; waited for, and only its time is kept."""
    model.eval()
    time_, rows = recipe.training.sequence_length, recipe.training.batch_size
    words = torch.from_numpy(prepared.stores["valid"].tokens[:].astype("int64")).to(device)
    lanes = words[: len(words) // rows * rows].view(rows, -1)
    states: list[Any] = [None] * len(model.layers)
    nats = torch.zeros((), device=device)
    for start in range(0, lanes.shape[1] - 1, time_):
        piece = lanes[:, start : start + time_ + 1]
        with torch.autocast(device.type, half) if half else nullcontext():
            logits, states = model(piece[:, :-1], states)
        nats += F.cross_entropy(logits.float().flatten(0, 1), piece[:, 1:].flatten(), reduction="sum")
    return float(nats)


@torch.no_grad()
def copy_weights_back(model: Plain, twin: LanguageModel) -> None:
    """Copies the weights of the plain model back to the elman model."""
    twin.embedding.weight.copy_(model.embedding.weight)
    assert twin.output_bias is not None
    twin.output_bias.copy_(model.output.bias)
    for layer, block in zip(model.layers, twin.stack.blocks(), strict=True):
        cell: Any = block.layer.cell
        cell.from_input.weight.copy_(layer.weight_ih_l0)
        cell.from_past.weight.copy_(_whole(layer))
        cell.from_input.bias.copy_(layer.bias_ih_l0)


def _whole(layer: Any) -> Tensor:
    """Recurrent weights, none of them dropped."""
    dropped = getattr(layer, "parametrizations", None)
    return layer.weight_hh_l0 if dropped is None else dropped.weight_hh_l0.original


def measure(source: Any, epochs: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    results: dict[str, Any] = {"epochs": epochs, "settings": dict(settings)}
    recipe = read_recipe(source, {**settings, "training.max_epochs": epochs, "goals": []})
    with tempfile.TemporaryDirectory() as place:
        for name, run in (("elman", ours), ("plain torch", theirs)):
            found = []
            for number, (seconds, loss) in enumerate(run(recipe, Path(place)), start=1):
                print(
                    f"{name}, epoch {number}: {seconds:.2f} s, validation perplexity {math.exp(loss):.2f}", flush=True
                )
                found.append({"seconds": seconds, "perplexity": math.exp(loss)})
            typical = median(one["seconds"] for one in found[1:] or found)
            results[name] = {"epochs": found, "seconds_per_epoch": typical, "perplexity": found[-1]["perplexity"]}
    plain, own = results["plain torch"], results["elman"]
    results["times_faster"] = plain["seconds_per_epoch"] / own["seconds_per_epoch"]
    results["perplexity_ratio"] = own["perplexity"] / plain["perplexity"]
    print(f"{results['times_faster']:.2f} times as fast, perplexity {results['perplexity_ratio']:.4f} times theirs")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default=RECIPE, help="(default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=6, help="(default: %(default)s)")
    options, settings = parser.parse_known_args()
    print(f"wrote {write('epochs', measure(options.recipe, options.epochs, parse_overrides(settings)))}")


if __name__ == "__main__":
    main()
