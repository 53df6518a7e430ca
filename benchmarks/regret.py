"""Regret of the default settings: how much a family of models loses against the best of a random search.

    python -m benchmarks.regret --data tinyshakespeare --params 300k --epochs 1 --trials 12 --run runs/regret
    python -m benchmarks.regret --data wikitext2 --families lstm transformer --params 13M --epochs 3 --workers 14

For each family and data set, what `elman train --data F --model NAME --params N` trains is compared with trainings with
drawn settings, of the same size and on the same tokens. The best is chosen by validation loss; regret is the loss of
the default over that of the best, minus one, on test data where there are any. A killed search goes on where it was.
"""

import argparse
import json
import math
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.reporting import write
from elman.comparison.plan import Job, make_run_folder
from elman.comparison.scheduler import WorkerPool
from elman.comparison.spaces import read_space
from elman.comparison.workers import usual_workers
from elman.files import make_folder
from elman.pipeline.devices import choose_device
from elman.pipeline.prepare import prepare
from elman.pipeline.recipe import read_recipe

DATA = {  # name: tokenizer, and the names of the files of each split, where there are any
    "tinyshakespeare": ("character", {"train": "train.txt", "valid": "valid.txt"}),
    "war_and_peace": ("character", {"train": "train.txt", "valid": "valid.txt", "test": "test.txt"}),
    "wikitext2": ("word", {"train": "train.txt.gz", "valid": "valid.txt.gz", "test": "test.txt.gz"}),
    "brown": ("word", {"train": "train.txt.gz", "valid": "valid.txt.gz", "test": "test.txt.gz"}),
}
COMMON = {
    "training.learning_rate": "log(5e-4,1e-2)",
    "training.schedule": ["cosine"],
    "training.warmup_steps": [50, 200],
    "training.batch_size": [16, 64],
    "training.sequence_length": [32, 128],
    "training.weight_decay": [0.01, 0.1],
    "training.betas": [[0.9, 0.98]],
    "model.dropout": [0.1, 0.2, 0.4],
    "model.tied_embeddings": [False],
    "model.embedding_scale": [0.0],
}
DRAWN = 0.5  # the share of settings that a trial does not leave at their defaults
PRE = {"model.residual": True, "model.norm": "pre"}


def _dilated(kernel: int, depth: int, each: int, gated: bool) -> list[dict[str, Any]]:
    """Convolutions of growing dilation, `each` of them at every one."""
    return [
        {"convolution": {"kernel_size": kernel, "dilation": 2 ** (place // each), "gated": gated}}
        for place in range(depth)
    ]


def _blocks(layers: list[Any], repeat: int, **others: Any) -> dict[str, Any]:
    """Residual blocks with a norm before each layer."""
    return {"model.pattern": layers * repeat, **PRE, **others}


def _attention(**settings: Any) -> dict[str, Any]:
    return {"attention": {"positions": "rotary", "context": 128, **settings}}


RMS = {"model.norm_type": "rms"}
CELL: list[dict[str, Any]] = [
    *({"model.num_layers": layers, "model.norm": "post"} for layers in (1, 2)),
    *({"model.num_layers": layers} for layers in (2, 3)),
    *({"model.num_layers": layers, **PRE} for layers in (2, 3)),
]
SHAPES: dict[str, list[dict[str, Any]]] = {
    "window": [
        *({"model.context": context} for context in (3, 8)),
        *({"model.context": context, "model.num_layers": 2, **PRE} for context in (3, 5)),
    ],
    "rnn": CELL,
    "gru": CELL,
    "lstm": [*CELL, {"model.forget_bias": 2.0}],
    "convolution": [
        {"model.pattern": _dilated(kernel, depth, each, gated), **PRE}
        for kernel, depth, each in ((2, 6, 1), (3, 4, 1), (3, 8, 2), (5, 4, 1), (5, 6, 2))
        for gated in (False, True)
    ],
    "transformer": [
        _blocks([_attention(num_heads=heads, positions=positions), wide], repeat)
        for heads, positions in ((4, "alibi"), (4, "rotary"), (8, "rotary"))
        for wide, repeat in (("feedforward", 3), ("swiglu", 4), ("swiglu", 6))
    ],
    "mamba": [{"model.num_layers": layers, **PRE, **RMS} for layers in (1, 2, 4, 6)],
    "mingru": [
        *(_blocks(["mingru"], repeat) for repeat in (2, 4)),
        *(_blocks(["mingru", wide], repeat) for repeat in (2, 4) for wide in ("feedforward", "swiglu")),
    ],
}


def draw(family: str, dice: np.random.Generator) -> dict[str, Any]:
    """Settings of a trial: a shape of the family, and about half of what all families have."""
    shapes = SHAPES[family]
    found = dict(shapes[dice.integers(len(shapes))]) if dice.random() < 1 - DRAWN / 2 else {}
    for key, written in COMMON.items():
        value = (
            written[dice.integers(len(written))] if isinstance(written, list) else read_space(key, written).draw(dice)
        )
        if dice.random() < DRAWN:
            found[key] = value
    return found


class Cell(NamedTuple):
    """A family on a data set."""

    data: str
    family: str
    jobs: list[tuple[dict[str, Any], Job]]  # settings beside the defaults; the first has none

    def rows(self) -> Iterator[dict[str, Any]]:
        for settings, job in self.jobs:
            found = job.results if job.done else {}
            yield {
                "settings": settings,
                "valid": found.get("valid", {}).get("loss"),
                "test": found.get("test", {}).get("loss"),
                "parameters": found.get("parameters"),
                "tokens_per_second": found.get("tokens_per_second"),
            }

    def summary(self) -> dict[str, Any]:
        rows = [*self.rows()]
        ended = [row for row in rows if row["valid"] is not None and math.isfinite(row["valid"])]
        if not ended or rows[0]["valid"] is None:
            return {"trials": rows}
        best = min(ended, key=lambda row: row["valid"])
        split = "valid" if best["test"] is None else "test"
        return {
            "split": split,
            "default": rows[0][split],
            "best": best[split],
            "regret": rows[0][split] / best[split] - 1,
            "settings": best["settings"],
            "trials": rows,
        }


def recipe_of(data: str, family: str, options: argparse.Namespace) -> dict[str, Any]:
    """What `elman train --data F --model NAME --params N` trains, for so many epochs."""
    tokenizer, files = DATA[data]
    home = Path(os.environ.get("ELMAN_DATA", "data")) / data
    return {
        "data": {split: str(home / name) for split, name in files.items()},
        "tokenizer": tokenizer,
        "model": {"type": family},
        "parameters": options.params,
        "device": options.device,
        "threads": 1,
        "training": {"max_epochs": options.epochs, "precision": options.precision},
    }


def cell_of(data: str, family: str, prepared: Path, options: argparse.Namespace) -> Cell:
    plain = recipe_of(data, family, options)
    dice = np.random.default_rng(zlib.crc32(f"{data} {family}".encode()))
    jobs: list[tuple[dict[str, Any], Job]] = []
    while len(jobs) <= options.trials:
        settings = draw(family, dice) if jobs else {}
        if any(settings == known for known, _ in jobs[1:]):
            continue
        label = f"trial-{len(jobs):02d}" if jobs else "default"
        job = Job(f"{data} {family}", label, options.run / data / family / label, read_recipe(plain, settings))
        make_run_folder(job, prepared)
        jobs.append((settings, job))
    return Cell(data, family, jobs)


def make_cells(options: argparse.Namespace) -> list[Cell]:
    cells = []
    for data in options.data:
        prepared = options.run / data / "prepared"
        make_folder(prepared / "data")
        prepare(read_recipe(recipe_of(data, "lstm", options)), prepared)
        cells += [cell_of(data, family, prepared, options) for family in options.families]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.regret", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", nargs="+", choices=DATA, default=[*DATA])
    parser.add_argument("--families", nargs="+", choices=SHAPES, default=[*SHAPES])
    parser.add_argument("--params", default="300k", help="number of parameters (default: 300k)")
    parser.add_argument("--epochs", type=int, default=1, help="passes over the training data (default: 1)")
    parser.add_argument("--trials", type=int, default=12, help="drawn settings for each family (default: 12)")
    parser.add_argument("--workers", type=int, default=0, help="trainings at a time (default: one per core)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--run", type=Path, default=Path("runs/regret"), help="folder of the trainings")
    parser.add_argument("--to", type=Path, help="folder of the record (default: benchmarks/results)")
    options = parser.parse_args()
    cells = make_cells(options)
    # round by round, so that all families have as many trials when time is up
    jobs = [cell.jobs[number][1] for number in range(options.trials + 1) for cell in cells if number < len(cell.jobs)]
    failures: dict[str, str] = {}
    with closing(WorkerPool(usual_workers(options.workers, choose_device(options.device)))) as pool:
        for event in pool.run_jobs(jobs):
            if event.kind == "done" and event.job:
                print(event.job.name, event.job.results["valid"]["loss"], event.left, "left", flush=True)
                record(cells, failures, options)
            elif event.kind == "failed" and event.job:
                failures[event.job.name] = event.text
                print(event.job.name, "failed:", event.text[-300:], flush=True)
    for cell in cells:
        row = cell.summary()
        if "regret" in row:
            about = f"{row['default']:.4f} {row['best']:.4f} {row['regret']:+.2%}"
            print(f"{cell.data} {cell.family:<14} {about}", json.dumps(row["settings"]))
    print(record(cells, failures, options))


def record(cells: list[Cell], failures: Mapping[str, str], options: argparse.Namespace) -> Path:
    about = {"parameters": options.params, "epochs": options.epochs, "precision": options.precision}
    table = {f"{cell.data} {cell.family}": cell.summary() for cell in cells}
    return write(f"regret-{options.params}", {**about, "cells": table, "failures": {**failures}}, options.to)


if __name__ == "__main__":
    main()
