"""A training step on one CPU thread: a two-layer LSTM language model, then every cell in every form of the recurrence.

The model: ours beside the usual torch loop (nn.LSTM, logits of all positions, F.cross_entropy, plain Adam), the whole
step with the optimizer. A cell: forward and backward of one layer, beside nn.LSTM of the same shape. Since cells
multiply more or less, its time is also given for as many multiplications as an LSTM has.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.harness import compare, interleaved, show, write
from elman.batches import Batch
from elman.cells import CELLS, Cell
from elman.models import LanguageModel, StackConfig
from elman.ops.recurrence import compiled, forms_that_can_run, recur, using
from elman.training import TrainingConfig, World
from elman.training.update import Updater

WORDS, ROWS, TIME = 10_000, 32, 64
SHAPES = [(1, 35, 64), (8, 35, 64), (64, 35, 64), (1, 35, 256), (32, 8, 256), (32, 35, 256), (64, 64, 256)]
SHAPES += [(1, 64, 512), (8, 8, 512), (32, 35, 512)]
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "gru": [{}, {"reset": "before"}],
    "residual": [{}, {"form": "antisymmetric"}],
    "peephole": [{}, {"form": "full"}],
}


class Usual(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, tokens, state=None):
        x, state = self.lstm(self.embedding(tokens), state)
        return self.head(x), state


def usual(width: int, batch: Batch):
    torch.manual_seed(0)
    model = Usual(width)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    held = [None]

    def step():
        optimizer.zero_grad()
        logits, state = model(batch.inputs, held[0])
        F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        held[0] = tuple(part.detach() for part in state)

    return step


def ours(width: int, batch: Batch, form: str):
    torch.manual_seed(0)
    config = StackConfig.make({"pattern": ["lstm"], "num_layers": 2, "hidden_size": width, "tied_embeddings": False})
    model = LanguageModel(config, WORDS)
    update = Updater(model, TrainingConfig.make({"optimizer": "adam"}), torch.device("cpu"), World())

    def step():
        with using(form):
            update(batch, 1e-3)

    return step


def language_model(rounds: int) -> dict:
    tokens = torch.randint(WORDS, (ROWS, TIME + 1))
    batch = Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), None, fresh=False)
    results = {}
    for width in (256, 512):
        variants = {"usual torch loop": usual(width, batch)}
        forms = ("compiled", "vendor", "reference")
        variants |= {f"elman, {form} recurrence": ours(width, batch, form) for form in forms}
        seconds = interleaved(variants, rounds)
        table = compare(seconds, "usual torch loop")
        show(f"LSTM language model, width {width}, {WORDS:,} words, {ROWS} x {TIME}", table, "usual torch loop")
        loop = compare(seconds, "elman, vendor recurrence")["elman, reference recurrence"]["faster"]
        print(f"  the reference loop takes {1 / loop:.2f} x the vendor path's time")
        results[f"width {width}"] = {**table, "reference over vendor": 1 / loop}
    return results


def multiplications(cell: Cell) -> int:
    """Of one row in one step, the input's product included."""
    made = compiled.plan(cell)
    assert isinstance(made, compiled.Plan)
    past = sum(len(node.args) for node in made.step.nodes if node.op == "product")
    return cell.from_input.weight.numel() + past * cell.hidden_size**2


def layers(x: Tensor, given: Tensor, cell: Cell) -> dict[str, Callable[[], Any]]:
    """Forward and backward of nn.LSTM and of the cell in each form."""
    lstm = nn.LSTM(x.shape[-1], x.shape[-1], batch_first=True)

    def vendor() -> None:
        torch.autograd.grad(lstm(x)[0], [x, *lstm.parameters()], given)

    def form(name: str) -> Callable[[], None]:
        def run() -> None:
            with using(name):
                outputs, _ = recur(cell, x, cell.initial_state(len(x)))
            torch.autograd.grad(outputs, [x, *cell.parameters()], given)

        return run

    return {"nn.LSTM": vendor, **{name: form(name) for name in forms_that_can_run(cell, x)}}


def _row(variants: dict[str, Callable[[], Any]], rounds: int, share: float) -> dict[str, float]:
    """The compiled form's time, its ratio to nn.LSTM's `share`, and how much longer the others take."""
    seconds = interleaved(variants, rounds, clock=time.process_time)
    against = compare(seconds, "nn.LSTM")["compiled"]
    scaled = {"scaled": 1 / (against["faster"] * share)}
    scaled |= {"low": 1 / (against["high"] * share), "high": 1 / (against["low"] * share)}
    others = {name: 1 / row["faster"] for name, row in compare(seconds, "compiled").items() if name != "compiled"}
    return {"ms": against["ms"], **scaled, **others}


def cells(rounds: int) -> dict:
    results: dict[str, Any] = {}
    for batch, length, width in SHAPES:
        print(f"\n{batch} rows, {length} steps, {width} units: ms, and times the time of nn.LSTM for as many")
        print("multiplications (quartiles); how many times faster than the vendor's kernel and the plain loop")
        for name in CELLS:
            for settings in SETTINGS.get(name, [{}]):
                cell = CELLS[name](CELLS[name].Config(hidden_size=width, **settings), width)
                x = torch.randn(batch, length, width, requires_grad=True)
                variants = layers(x, torch.randn(batch, length, width), cell)
                row = _row(variants, rounds, multiplications(cell) / (8 * width**2))
                title = " ".join([name, *(str(value) for value in settings.values())])
                results[f"{batch} x {length} x {width}, {title}"] = row
                others = "".join(f"  {form} {row[form]:5.2f} x" for form in ("vendor", "reference") if form in row)
                spread = f"{row['scaled']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
                print(f"  {title:<24} {row['ms']:8.2f} ms  {spread:<22}{others}", flush=True)
    worst = max(results, key=lambda one: results[one]["scaled"])
    print(f"\nthe slowest for its multiplications: {worst}, {results[worst]['scaled']:.2f} x nn.LSTM")
    return results


def main(rounds: int = 15) -> dict:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return {"language model": language_model(rounds), "cells": cells(rounds)}


if __name__ == "__main__":
    print(write("train-step-cpu", main()))
