"""Kill training with SIGKILL at random times, resume it until it ends, and compare with an uninterrupted run.

    python -m benchmarks.kills --kills 1000

Weights, optimizer, random number generators, carried states, results (except speed) and log (except times) must be
bitwise equal. Half of the kills come at a random time, half right before a random file operation, to cover the short
windows between two of them. Each attempt is a fork of a process with all modules imported: a second instead of five.
With no failure in n kills, fewer than 3/n of them fail, with 95 % confidence.
"""

import argparse
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from elman import files
from elman.runs import Run

WORDS = ("the", "a", "cat", "dog", "bird", "house", "tree", "sat", "ran", "saw", "on", "and", "big", "small", "old")
TRAINING = {"batch_size": 8, "sequence_length": 12, "micro_batches": 2, "log_every": 4, "evaluate_every": 3}
STREAM = {"data": {"train": "text.txt", "boundary": "carry"}, "tokenizer": "character"}
MODEL = {
    "type": "lstm",
    "hidden_size": 16,
    "num_layers": 2,
    "dropout": 0.2,
    "weight_dropout": 0.3,
    "embedding_dropout": 0.1,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "stream": {
        **STREAM,
        "model": MODEL,
        "training": {
            **TRAINING,
            "jitter": True,
            "schedule": "cosine",
            "warmup_steps": 5,
            "max_steps": 40,
            "save_every": 2,
        },
    },
    "documents": {
        "data": {"train": "text.txt", "document": "line", "boundary": "reset", "test_fraction": 0.1},
        "tokenizer": "word",
        "model": {**MODEL, "type": "gru"},
        "training": {
            **TRAINING,
            "batch_size": 7,
            "sequence_length": 5,
            "schedule": "plateau",
            "max_epochs": 2,
            "save_every": 3,
        },
    },
    "averaging": {
        **STREAM,
        "model": MODEL,
        "training": {
            **TRAINING,
            **{"optimizer": "sgd", "learning_rate": 20.0, "clip_grad_norm": 0.25, "averaging": "triggered"},
            **{"averaging_window": 1, "evaluate_every": 2, "max_steps": 30, "save_every": 1},
        },
    },
    "clock": {  # saved when the clock allows it, as by default: other moments in each attempt
        "data": {"language": {"type": "brackets", "train_documents": 120, "valid_documents": 10, "test_documents": 5}},
        "model": {**MODEL, "type": "rnn"},
        "training": {**TRAINING, "max_epochs": 2, "patience": 9},
    },
}
KILLS = 8  # of one run at the most, then it may end


def write_text(path: Path) -> None:
    dice = random.Random(1)
    path.write_text("".join(" ".join(dice.choices(WORDS, k=dice.randint(2, 9))) + "\n" for _ in range(120)))


def start(recipe: Path, run: Path, log: Path, operation: int | None) -> int:
    """Forks a training run, new or resumed, and returns its process id; it kills itself before that file operation."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        with log.open("a") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        counter = Counter(operation)
        files.hook = counter  # type: ignore[assignment]
        from elman.cli.main import main

        main(["train", str(recipe), "--run", str(run), "--resume"])
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
        Path("operations.txt").write_text(str(counter.count))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Counter:
    """Counts operations on files, and is killed before one of them."""

    def __init__(self, last: int | None):
        self.count, self.last = 0, last

    def __call__(self, *operation: object) -> None:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def attempt(recipe: Path, run: Path, log: Path, seconds: float = math.inf, operation: int | None = None) -> int | None:
    """The exit code of one attempt, or None where it was killed: after so many seconds, or before that operation."""
    child, begun = start(recipe, run, log, operation), time.monotonic()
    while time.monotonic() - begun < seconds:
        found, status = os.waitpid(child, 0 if math.isinf(seconds) else os.WNOHANG)
        if found:
            break
        time.sleep(0.002)
    else:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return None if code == -signal.SIGKILL else code


def left(folder: Path) -> dict[str, Any]:
    """Everything about a finished run that must be the same in every repetition."""
    run = Run(folder)
    found: dict[str, Any] = {}
    for name, shelf in (("best", run.best), ("last", run.last)):
        newest = shelf.newest()
        assert newest is not None, f"{folder}: no {name}"
        found |= {f"{name}/{path.name}": path.read_bytes() for path in newest.glob("*.safetensors")}
        facts = json.loads((newest / "facts.json").read_text())
        facts.pop("metrics", None)  # a place in a file that also tells the time
        found |= {f"{name}/step": newest.name, f"{name}/facts": facts}
    results = json.loads((folder / "results.json").read_text())
    results.pop("tokens_per_second")
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    return found | {
        "results": results,
        "metrics": [{**line, "clock": None} for line in lines],
        "config": run.config.read_text(),
    }


def kill_often(variant: str, kills: int, dice: random.Random, place: Path) -> list[str]:
    """What went wrong, if anything, in so many kills of one kind of run."""
    place.mkdir()
    os.chdir(place)
    write_text(Path("text.txt"))
    recipe, log, peaceful = Path("recipe.json"), Path("log.txt"), Path("peaceful")
    recipe.write_text(
        json.dumps({**VARIANTS[variant], "device": "cpu", "generation": {"max_tokens": 5}})
    )  # JSON is YAML
    begun = time.monotonic()
    if attempt(recipe, peaceful, log):
        return [f"{variant}: an undisturbed run failed: {log.read_text()}"]
    whole, expected = time.monotonic() - begun, left(peaceful)
    operations = int(Path("operations.txt").read_text())
    if variant == "averaging" and not expected["last/facts"]["trainer"]["update"]["averaged"]:
        return ["averaging: the average never began, so that nothing was tested"]
    problems: list[str] = []
    done = number = 0
    while done < kills:
        number += 1
        run, here = Path(f"run{number}"), 0
        code: int | None = None
        while code is None:
            moment: dict[str, Any] = {}
            if here < KILLS and done < kills:
                by_clock = {"seconds": dice.uniform(0, 0.6 * whole)}
                moment = by_clock if dice.random() < 0.5 else {"operation": dice.randint(1, 2 * operations // 3)}
            code = attempt(recipe, run, log, **moment)
            here, done = here + (code is None), done + (code is None)
        if code:
            problems.append(f"{variant}, run {number}: exit code {code} after {here} kills: {log.read_text()[-2000:]}")
            continue
        found = left(run)
        different = sorted(key for key in expected if found.get(key) != expected[key])
        if different or found.keys() != expected.keys():
            problems.append(f"{variant}, run {number}: after {here} kills {', '.join(different)} differ")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000, help="in all (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of the moments (default: any)"
    )
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS), help="default: all")
    options = parser.parse_args()
    for module in (
        "matplotlib.backends.backend_agg",
        "torch._dynamo",
        "elman.pipeline.session",
        "elman.pipeline.progress",
    ):
        import_module(module)  # so that no attempt has to
    torch.set_num_threads(1)
    dice, each = random.Random(options.seed), -(-options.kills // len(options.variants))
    print(f"seed {options.seed}: {each} kills each of {', '.join(options.variants)}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        problems = []
        for variant in options.variants:
            begun = time.monotonic()
            found = kill_often(variant, each, dice, Path(place) / variant)
            print(f"{variant}: {each} kills, {len(found)} failures, {time.monotonic() - begun:.0f} s", flush=True)
            problems += found
        os.chdir("/")
    total = each * len(options.variants)
    print("\n".join(problems) or f"{total} kills, 0 failures: fewer than {3 / total:.2%} fail, with 95 % confidence")
    raise SystemExit(bool(problems))


if __name__ == "__main__":
    main()
