"""The benchmark suites: title, requirements, correctness check that runs first, and number of rounds."""

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks import agreement


class Suite(NamedTuple):
    title: str
    module: str  # has measure(rounds) -> results; imported on use, since peer libraries load slowly
    missing: Callable[[], str | None]  # the requirement that this machine lacks
    check: Callable[[], list[str]]  # fast implementations that differ from their references
    rounds: int

    def measure(self, rounds: int | None = None) -> Mapping[str, Any]:
        return import_module(f"benchmarks.{self.module}").measure(rounds or self.rounds)


def _no_requirement() -> None:
    return None


def _peers() -> str | None:
    missing = [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]
    return f"{' and '.join(missing)} to compare with: pip install {' '.join(missing)}" if missing else None


def _gpu() -> str | None:
    return None if torch.cuda.is_available() else "a GPU"


def _wikitext() -> str | None:
    home = Path(os.environ.get("ELMAN_DATA", "data")) / "wikitext2"
    return None if home.is_dir() else f"WikiText-2 in {home} (docs/data.md; ELMAN_DATA says where data is)"


SUITES = {
    "stepping": Suite("one token at a time on one core", "stepping", _peers, agreement.stepping, 30),
    "exports": Suite("exported C libraries of every layer", "exports", _no_requirement, list, 15),
    "rows": Suite("steps of many rows at once, one and two threads", "rows", _peers, agreement.rows, 9),
    "training": Suite("a training step on one core", "training", _no_requirement, agreement.recurrence, 15),
    "epoch": Suite("the WikiText-2 LSTM recipe", "recipe_update", _no_requirement, agreement.recurrence, 5),
    "cells": Suite("a training step of every cell on one core", "cells", _no_requirement, agreement.recurrence, 9),
    "scans": Suite("layers that are linear in their state", "scans", _no_requirement, agreement.scans, 3),
    "ngrams": Suite("counting and scoring n-grams", "ngrams", _wikitext, list, 7),
    "scan-kernels": Suite("linear scans and Newton iteration on a GPU", "scan_kernels", _gpu, agreement.scans, 30),
    "mamba-kernels": Suite("Mamba and its parts on a GPU", "mamba_kernels", _gpu, agreement.scans, 20),
    "generation": Suite("writing text by captured steps", "generation", _no_requirement, agreement.generation, 15),
    "recurrence": Suite("generated kernels on a GPU", "recurrence", _gpu, agreement.recurrence, 30),
}
