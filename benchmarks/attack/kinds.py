"""Kinds of work that are attacked: what each needs, the command that does it, and what must be the same afterwards."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from elman.runs.checkpoint import CheckpointFolder

WORDS = ("the", "a", "cat", "dog", "bird", "house", "tree", "sat", "ran", "saw", "on", "and", "big", "small", "old")
TRAINING = {"batch_size": 8, "sequence_length": 12, "micro_batches": 2, "log_every": 4, "evaluate_every": 3}
STREAM = {"data": {"train": "text.txt", "boundary": "carry"}, "tokenizer": "character"}
DROPOUT = {"dropout": 0.2, "weight_dropout": 0.3, "embedding_dropout": 0.1}
LSTM = {"type": "lstm", "hidden_size": 16, "num_layers": 2, **DROPOUT}
SHORT = {"batch_size": 8, "max_steps": 4, "evaluate_every": 2, "save_every": 2, "log_every": 2}
SMALL = {"hidden_size": 8, "num_layers": 1}
# Runs with all that has a memory: long enough for kills at random moments
LONG: dict[str, dict[str, Any]] = {
    "stream": {
        **STREAM,
        "model": LSTM,
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
        "model": {**LSTM, "type": "gru"},
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
        "model": LSTM,
        "training": {
            **TRAINING,
            **{"optimizer": "sgd", "learning_rate": 20.0, "clip_grad_norm": 0.25, "averaging": "triggered"},
            **{"averaging_window": 1, "evaluate_every": 2, "max_steps": 30, "save_every": 1},
        },
    },
    "clock": {  # saved when the clock allows it, as by default: other moments in each attempt
        "data": {"language": {"type": "brackets", "train_documents": 120, "valid_documents": 10, "test_documents": 5}},
        "model": {**LSTM, "type": "rnn"},
        "training": {**TRAINING, "max_epochs": 2, "patience": 9},
    },
}
# One of every task, as short as two saves allow
BRIEF: dict[str, dict[str, Any]] = {
    "language_model": {**STREAM, "model": {"type": "gru", **SMALL}, "training": {**SHORT, "sequence_length": 12}},
    "ngram": {"data": {"train": "text.txt"}, "tokenizer": "word", "model": {"type": "ngram", "order": 3}},
    "masked": {
        "task": "masked",
        "data": {"train": "text.txt"},
        "tokenizer": "word",
        "model": {"hidden_size": 8},
        "training": {**SHORT, "sequence_length": 12},
    },
    "classify": {"task": "classify", "data": {"train": "labels.tsv"}, "model": SMALL, "training": SHORT},
    "regress": {"task": "regress", "data": {"train": "numbers.tsv"}, "model": SMALL, "training": SHORT},
    "tag": {"task": "tag", "data": {"train": "tags.conll"}, "model": SMALL, "training": SHORT},
    "translate": {
        "task": "translate",
        "data": {"train": "pairs.tsv"},
        "model": {"encoder": SMALL, "decoder": SMALL},
        "search": {"beam_size": 2, "max_tokens": 6},
        "training": SHORT,
    },
}
RACE = {
    "entrants": {"ngram": {"type": "ngram", "order": 2}, "gru": {"type": "gru", **SMALL}},
    "parameters": 0,
    "tokens": 600,
    "seeds": 1,
    "trials": 1,
    "extra_trials": 0,
    "recipe": {
        "device": "cpu",
        "data": {"language": {"type": "brackets", "train_documents": 60, "valid_documents": 8, "test_documents": 8}},
        "training": {"batch_size": 8, "learning_rate": 1e-2},
        "generation": {"max_tokens": 5},
    },
}
# The second of its trials is pruned; each proposal uses the outcomes of all before
SWEEP: dict[str, Any] = {
    "settings": {"training.learning_rate": "log(1e-6,1e-3)", "model.hidden_size": [4, 8]},
    "measure": "loss",
    "search": "random",
    "concurrent": 1,
    "recipe": {
        "device": "cpu",
        **BRIEF["classify"],
        "training": {"batch_size": 8, "max_steps": 2, "evaluate_every": 1, "save_every": 2},
    },
}
# Two megabytes of checkpoints
LARGE = {**STREAM, "model": {"type": "lstm", "hidden_size": 96}, "training": {**SHORT, "sequence_length": 12}}
MEASURED = "usage.json"  # what a training took, by the race around it: not known where that is killed as it ends
CLOCKED = ("per_second", "seconds", "clock", "started", "peak_bytes")


class Kind(NamedTuple):
    """Work in the current folder that leaves `out` and nothing else."""

    prepare: Callable[[], None]
    words: tuple[str, ...]
    out: str

    def command(self, out: str) -> list[str]:
        return [out if word == "OUT" else word for word in self.words]


def write_data() -> None:
    dice = random.Random(1)
    lines = [" ".join(dice.choices(WORDS, k=dice.randint(2, 9))) for _ in range(120)]
    tables = {"labels": [f"{len(one.split()) % 2}\t{one}" for one in lines]}
    tables |= {"numbers": [f"{len(one)}\t{one}" for one in lines], "pairs": [f"{one}\t{one[::-1]}" for one in lines]}
    Path("text.txt").write_text("".join(f"{one}\n" for one in lines))
    for name, rows in tables.items():
        head = "source\ttarget" if name == "pairs" else "label\ttext"
        Path(f"{name}.tsv").write_text("\n".join([head, *rows]) + "\n")
    sentences = ["\n".join(f"{word}\t{word[0].upper()}" for word in one.split()) for one in lines]
    Path("tags.conll").write_text("\n\n".join(sentences) + "\n")
    Path("table.csv").write_text("number,text\n" + "".join(f"{number},{one}\n" for number, one in enumerate(lines)))


def _training(recipe: dict[str, Any]) -> Kind:
    def prepare() -> None:
        write_data()
        whole = {**recipe, "device": "cpu", "generation": {"max_tokens": 5}}
        Path("recipe.json").write_text(json.dumps(whole))  # JSON is YAML

    return Kind(prepare, ("train", "recipe.json", "--run", "OUT", "--resume"), "run")


def _race() -> Kind:
    def prepare() -> None:
        Path("race.yaml").write_text(json.dumps(RACE))

    return Kind(prepare, ("compare", "race.yaml", "--run", "OUT", "--resume", "--workers", "1"), "race")


def _sweep(trials: int) -> Kind:
    def prepare() -> None:
        write_data()
        Path("sweep.yaml").write_text(json.dumps({**SWEEP, "trials": trials}))

    return Kind(prepare, ("sweep", "sweep.yaml", "--run", "OUT", "--resume", "--workers", "1"), "sweep")


def _prediction() -> Kind:
    def prepare() -> None:
        import elman

        write_data()
        elman.train({**BRIEF["classify"], "device": "cpu"}, run="model", progress=False)

    return Kind(prepare, ("predict", "model", "--data", "table.csv", "--out", "OUT"), "answers.csv")


KINDS: dict[str, Kind] = {name: _training(recipe) for name, recipe in {**LONG, **BRIEF}.items()}
KINDS |= {
    "large": _training(LARGE),
    "race": _race(),
    "sweep": _sweep(trials=8),
    "short sweep": _sweep(trials=3),
    "predict": _prediction(),
}


def left(out: Path, plots: bool = True) -> dict[str, Any]:
    """Every file that work has left, without what a clock has written: the same in every repetition. Of checkpoints the
    newest: how old the one before is depends on the clock, and on where a run was resumed."""
    shelves = [shelf for name in ("best", "last") for shelf in out.rglob(name) if shelf.is_dir()]
    older = {path for shelf in shelves for path in shelf.iterdir()}
    older -= {newest for shelf in shelves if (newest := CheckpointFolder(shelf).newest())}
    kept = [path for path in sorted(out.rglob("*")) if not older & {path, *path.parents}]
    kept = [path for path in kept if plots or path.parent.name != "plots"]  # which show the name of their folder
    return {str(path.relative_to(out)): _settled(path) for path in kept if path.name != MEASURED}


def _settled(path: Path) -> Any:
    """The contents of a file as far as they do not depend on when it was written."""
    if path.is_dir() or path.name in ("lock", "train.log", "environment.json", "speed.json"):
        return None
    if path.name in ("report.html", "results.parquet") or (path.parent.name == "plots" and path.parts[1] == "race"):
        return None  # which show the speed
    if path.match("sweep/plots/*"):
        return None  # which show the command, with the name of the folder
    if path.suffix not in (".json", ".jsonl"):
        return path.read_bytes()
    text = path.read_text()
    if path.name == "manifest.json":
        return sorted({*json.loads(text)["files"]} - {MEASURED})
    found: Any = [json.loads(one) for one in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
    if path.name == "facts.json":
        found.pop("metrics", None)  # a position in a file with times
    return without_clock(found)


def without_clock(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_clock(one) for key, one in value.items() if not any(clocked in key for clocked in CLOCKED)}
    return [without_clock(one) for one in value] if isinstance(value, list) else value
