"""Train, evaluate, generate and race in one process, in any order, and compare with each alone in its own process.

    python -m benchmarks.attack.orders --count 144

A case is a new process, which does the four in one of their 24 orders and the first once more, on the GPU where there
is one. Each must give what it gives in a process that does nothing else: the same scores, samples, text and places, and
on a CPU the same files, weights included. On a GPU, which may add up in another order, numbers may differ by 0.01 %.
"""

import math
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from itertools import permutations
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch

import elman
from benchmarks.attack.attempts import replace_workers
from benchmarks.attack.campaign import Campaign, parser
from benchmarks.attack.kinds import left, without_clock, write_data
from elman.jsonable import jsonable
from elman.pipeline.evaluate import evaluate_run

AT_ONCE = max(1, (os.cpu_count() or 1) // 2)  # processes
SECONDS = 300  # for a case, then it hangs
TOLERANCE = 1e-4  # relative, of numbers on a GPU
TRAINING: dict[str, float] = {
    "batch_size": 8,
    "sequence_length": 12,
    "max_steps": 12,
    "evaluate_every": 6,
    "log_every": 4,
}
TRAINING |= {"learning_rate": 1e-3, "save_every": 6}
# by the server of the processes, so that none imports them again
IMPORTED = [
    "benchmarks.attack.attempts",
    "benchmarks.attack.kinds",
    "elman.comparison.report",
    "elman.pipeline.session",
]
IMPORTED += ["matplotlib.pyplot", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg"]
STEPS_OF_KERNELS = 48  # fewer are left to cuDNN


class Kind(NamedTuple):
    """A model; the width for which a GPU has kernels, and the precision there."""

    model: Mapping[str, Any]
    width: int
    precision: str

    def recipe(self, device: str) -> dict[str, Any]:
        shared = {"device": device, "data": {"train": "text.txt"}, "tokenizer": "character"}
        shared |= {"generation": {"max_tokens": 20}}
        if self.model["type"] == "ngram":
            return {**shared, "model": self.model}
        if device == "cpu":
            return {**shared, "model": {**self.model, "hidden_size": 16}, "training": TRAINING}
        training = {**TRAINING, "sequence_length": STEPS_OF_KERNELS, "precision": self.precision}
        return {**shared, "model": {**self.model, "hidden_size": self.width}, "training": training}


KINDS = {
    "lstm": Kind({"type": "lstm"}, 512, "bf16"),
    "gru": Kind({"type": "gru"}, 1024, "tf32"),
    "layernorm-lstm": Kind({"type": "layernorm-lstm"}, 256, "fp32"),
    "attention": Kind({"type": "stack", "pattern": [{"attention": {"positions": "rotary"}}, "swiglu"]}, 256, "bf16"),
    "mamba": Kind({"type": "mamba"}, 256, "fp32"),
    "ngram": Kind({"type": "ngram", "order": 3}, 0, "fp32"),
}


class Work:
    """What a process does in its folder, beside the run `first` that is there; every call gives plain values."""

    def __init__(self, recipe: dict[str, Any]):
        self.recipe, self.device, self.number = recipe, recipe["device"], 0
        self.trained: Any = None  # one model for all calls, as in a notebook

    def __call__(self, name: str) -> Any:
        self.number += 1
        return without_clock(jsonable(getattr(self, name)()))

    def train(self) -> Any:
        run = f"run-{self.number}"
        found = elman.train(self.recipe, run=run, progress=False).results
        return found if self.device == "cuda" else {**found, "files": _digests(Path(run))}

    def eval(self) -> Any:
        return evaluate_run("first", device=self.device), self._model().score("the cat sat on a big dog")

    def generate(self) -> Any:
        return self._model().generate("the ", max_tokens=40, seed=1)

    def compare(self) -> Any:
        entrants = {"bigram": {"type": "ngram", "order": 2}, "other": self.recipe["model"]}
        race = {"entrants": entrants, "parameters": 0, "tokens": 2000, "seeds": 1, "trials": 1, "extra_trials": 0}
        race |= {"recipe": {**self.recipe, "model": {}}}
        found = elman.compare(race, f"race-{self.number}", workers=1)
        return [{key: row[key] for key in ("entrant", "place", "score", "figures", "samples")} for row in found.rows]

    def _model(self) -> Any:
        self.trained = self.trained or elman.load("first", self.device)
        return self.trained


STEPS = ("train", "eval", "generate", "compare")


def _digests(folder: Path) -> dict[str, str]:
    return {name: sha256(repr(text).encode()).hexdigest() for name, text in left(folder, plots=False).items()}


def in_order(place: Path, recipe: dict[str, Any], order: Sequence[str]) -> list[Any]:
    """What each step gives in this process, which works in a copy of the folder."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SECONDS)
    torch.set_num_threads(2)  # where one is chosen, it must be for that work alone
    if recipe["device"] == "cpu":  # else the worker of a race needs a process that has not used the GPU
        replace_workers()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(place, folder, dirs_exist_ok=True)
        os.chdir(folder)
        try:
            return list(map(Work(recipe), order))
        finally:
            os.chdir("/")


def _too_long(number: int, frame: Any) -> None:
    raise TimeoutError(f"took longer than {SECONDS} s")


def prepare(place: Path, recipe: dict[str, Any]) -> None:
    """Data, and a finished run."""
    place.mkdir()
    os.chdir(place)
    write_data()
    elman.train(recipe, run="first", progress=False)


def differences(found: Any, expected: Any, tolerance: float, where: str = "") -> Iterator[str]:
    """What is not the same, or nearly the same number."""
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        for key, value in found.items():
            yield from differences(value, expected[key], tolerance, f"{where}.{key}")
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from differences(one, other, tolerance, f"{where}.{number}")
    elif isinstance(found, float) and isinstance(expected, float):
        if not math.isclose(found, expected, rel_tol=tolerance, abs_tol=tolerance):
            yield f"{where}: {found} instead of {expected}"
    elif found != expected:
        yield f"{where}: {str(found)[:200]} instead of {str(expected)[:200]}"


def in_processes(work: Callable[..., Any], cases: Sequence[Sequence[Any]]) -> list[Any]:
    """The results of all cases, each in a new process; of one that failed or died, the exception."""
    context = get_context("forkserver")  # whose server never uses the GPU
    context.set_forkserver_preload(IMPORTED)
    with ProcessPoolExecutor(AT_ONCE, context, max_tasks_per_child=1) as pool:
        asked = [pool.submit(work, *case) for case in cases]
        return [one.exception() or one.result() for one in asked]


def main() -> None:
    campaign = Campaign(parser("orders", __doc__, len(KINDS) * math.factorial(len(STEPS)), [*KINDS]).parse_args())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tolerance = TOLERANCE if device == "cuda" else 0.0
    recipes = {kind: KINDS[kind].recipe(device) for kind in campaign.kinds}
    orders = list(permutations(STEPS))
    campaign.dice.shuffle(orders)
    cases = [(kind, order) for order in orders for kind in recipes]  # every kind has its share of the time
    with tempfile.TemporaryDirectory() as place:
        homes = {kind: Path(place, kind) for kind in recipes}
        _results(in_processes(prepare, [(homes[kind], recipe) for kind, recipe in recipes.items()]))
        single = [(kind, name) for kind in recipes for name in STEPS]
        alone = in_processes(in_order, [(homes[kind], recipes[kind], [name]) for kind, name in single])
        expected = dict(zip(single, (found for [found] in _results(alone)), strict=True))
        while campaign.more() and (wave := cases[: campaign.count][campaign.cases :][:AT_ONCE]):
            asked = [(homes[kind], recipes[kind], (*order, order[0])) for kind, order in wave]
            for (kind, order), found in zip(wave, in_processes(in_order, asked), strict=True):
                right = [expected[kind, name] for name in (*order, order[0])]
                wrong = differences(found, right, tolerance)
                campaign.tally(kind, *(f"{', '.join(order)}: {text}" for text in wrong))
    campaign.end()


def _results(found: list[Any]) -> list[Any]:
    """Nothing can be compared with a step that fails alone."""
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


if __name__ == "__main__":
    main()
