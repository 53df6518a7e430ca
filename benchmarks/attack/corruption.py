"""Damage any file of a finished or interrupted run, race or sweep, use it, and compare with the undamaged one.

    python -m benchmarks.attack.corruption --count 20000

Flipped bits, cuts (half of them at the end of a line), files swapped or replaced by those of another run, zeros,
repeated and deleted pieces, and missing files. A command must then refuse in one sentence or give what it gave before.
An older checkpoint may stand in for a damaged one if a warning says so, and the results are those of the older one.

    python -m benchmarks.attack.corruption --again

does the damage of all violations on record ten times more; those that are mended then count as mended.
"""

import contextlib
import json
import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import elman
from benchmarks.attack.campaign import Campaign, parser
from benchmarks.attack.children import Outcome, Worker, command, import_everything, in_child
from elman.comparison.worker_process import train_alone
from elman.comparison.workers import ForkingWorker
from elman.figures.figure import Figure
from elman.runs import Run

INTERRUPTED_AT = 6  # of 12 steps
REPETITIONS = 10  # of a violation; each damages another part of the same file in the same way
SECONDS = 120.0  # a command that takes longer hangs
VERBS = (4, 4, 1)  # how often each command comes: the last takes as long as all others
NEWLINE = ord("\n")

WORDS = ("the", "a", "cat", "dog", "bird", "house", "tree", "sat", "ran", "saw", "on", "and", "big", "small", "old")
TRAINING = {"batch_size": 8, "log_every": 2, "evaluate_every": 3, "save_every": 3, "max_steps": 12}
SMALL = {"type": "gru", "hidden_size": 8, "num_layers": 1}
EXAMPLES = {"test_fraction": 0.2, "valid_fraction": 0.2}
STREAM = {**TRAINING, "sequence_length": 12}
TABLE = {"train": "table.tsv", **EXAMPLES}
RECIPES: dict[str, dict[str, Any]] = {
    "language model": {
        "data": {"train": "text.txt", "test_fraction": 0.1},
        "tokenizer": "bpe",
        "model": {**SMALL, "dropout": 0.2},
        "training": STREAM,
    },
    "n-grams": {"data": {"train": "text.txt", "test_fraction": 0.1}, "model": {"type": "ngram", "order": 3}},
    "classify": {"task": "classify", "data": TABLE, "model": SMALL, "training": TRAINING},
    "tag": {"task": "tag", "data": {"train": "tagged.conll", **EXAMPLES}, "model": SMALL, "training": TRAINING},
    "translate": {
        "task": "translate",
        "data": {"train": "pairs.tsv", **EXAMPLES},
        "model": {"encoder": {"hidden_size": 8}, "decoder": {"hidden_size": 8}},
        "search": {"beam_size": 2, "max_tokens": 6},
        "training": TRAINING,
    },
    "regress": {"task": "regress", "data": {**TABLE, "train": "numbers.tsv"}, "model": SMALL, "training": TRAINING},
    "masked": {
        "task": "masked",
        "data": {"train": "text.txt", "document": "line", "test_fraction": 0.1},
        "model": {"hidden_size": 8, "num_layers": 1},
        "training": STREAM,
    },
}
RACE = {
    "entrants": {"ngram": {"order": 2}, "rnn": {}},
    "parameters": "5k",
    "tokens": 1500,
    "seeds": 1,
    "trials": 1,
    "recipe": {"data": {"train": "text.txt", "test_fraction": 0.1}, "training": {"batch_size": 8}, "device": "cpu"},
}
SWEEP = {
    "settings": {"training.learning_rate": "log(1e-3,1)", "model.hidden_size": [4, 8]},
    "search": "random",
    "trials": 3,
    "recipe": {**RECIPES["classify"], "training": {**TRAINING, "max_steps": 6}, "device": "cpu"},
}
SEVERAL = {"race": ("compare", RACE), "sweep": ("sweep", SWEEP)}  # trainings in a folder: the command and its settings
TIMED = ("seconds", "per_second", "peak_bytes", "clock", "speed")  # parts of names of what tells the time


def write_data(place: Path, dice: random.Random) -> None:
    """A text and tables for every task, which differ with the dice."""

    def line(least: int = 2, most: int = 9) -> list[str]:
        return dice.choices(WORDS, k=dice.randint(least, most))

    def table(name: str, head: str, rows: list[str]) -> None:
        (place / name).write_text("\n".join([head, *rows] if head else rows) + "\n")

    lines = [line() for _ in range(120)]
    table("text.txt", "", [" ".join(one) for one in lines])
    table("table.tsv", "label\ttext", [f"{'odd' if len(one) % 2 else 'even'}\t{' '.join(one)}" for one in lines])
    table("numbers.tsv", "label\ttext", [f"{len(one)}\t{' '.join(one)}" for one in lines])
    table("pairs.tsv", "source\ttarget", [f"{' '.join(one)}\t{' '.join(reversed(one))}" for one in map(_short, lines)])
    table("tagged.conll", "", ["".join(f"{word}\t{'N' if len(word) > 3 else 'O'}\n" for word in one) for one in lines])
    (place / "probe.txt").write_text("the cat sat\na big dog saw the old house\n")


def _short(line: list[str]) -> list[str]:
    return line[:4]


class Target(NamedTuple):
    """A folder to damage: its place beside its data, another of the same kind, and the commands that use it."""

    kind: str
    place: Path
    other: Path
    commands: dict[str, tuple[str, ...]]


def build(place: Path, kinds: Sequence[str]) -> list[Target]:
    """Every kind of run twice, on two texts: interrupted and finished; and a race and a sweep."""
    recipes = {kind: recipe for kind, recipe in RECIPES.items() if kind in kinds}
    found = []
    for number, name in enumerate(("one", "two")):
        here = place / name
        here.mkdir()
        write_data(here, random.Random(number))
        with contextlib.chdir(here):
            for kind, recipe in recipes.items():
                settings = {**recipe, "device": "cpu", "generation": {"max_tokens": 5}}
                for state in ("interrupted", "finished"):
                    for report in elman.iterate(settings, run=f"{kind} {state}"):
                        if state == "interrupted" and report.kind == "save" and report.step >= INTERRUPTED_AT:
                            break
            for kind in SEVERAL.keys() & set(kinds):
                build_several(kind, here)
    for kind, recipe in recipes.items():
        answer: tuple[str, ...] = (
            "generate",
            "RUN",
            "--prompt",
            "the",
            "--max-tokens",
            "12",
            "--seed",
            "1",
            "--temperature",
            "1",
        )
        if "task" in recipe:
            answer = ("predict", "RUN", "--data", "probe.txt")
        if recipe.get("task") == "masked":
            answer = ("inspect", "predictions", "RUN", "--text", "the cat sat on the big dog")
        commands = {
            "eval": ("eval", "RUN", "--json"),
            "answer": answer,
            "resume": ("train", "--run", "RUN", "--resume"),
        }
        found += [
            Target(kind, place / "one" / f"{kind} {state}", place / "two" / f"{kind} {state}", commands)
            for state in ("interrupted", "finished")
        ]
    for kind, (verb, _) in SEVERAL.items():
        if kind in kinds:
            one = "rnn/seed-1" if kind == "race" else "trial-001"
            again = (verb, "--run", "RUN", "--resume", "--json", "--workers", "1")
            commands = {"eval": ("eval", f"RUN/{one}", "--json"), "report": again}
            found.append(Target(kind, place / "one" / kind, place / "two" / kind, commands))
    return found


def build_several(kind: str, place: Path) -> None:
    """A finished race or sweep in a folder of that name."""
    verb, settings = SEVERAL[kind]
    (place / f"{kind}.yaml").write_text(json.dumps(settings))  # JSON is YAML
    words = [verb, f"{kind}.yaml", "--run", kind, "--workers", "1"]
    ended = in_child(lambda: in_one_process(words), place, 600)
    assert ended.code == 0, ended.err


def use(worker: Worker, target: Target, verb: str, folder: Path) -> tuple[Outcome, Any]:
    """Runs a command on a folder that holds the data and `run`, and reduces its results to what is deterministic."""
    words = [word.replace("RUN", "run") for word in target.commands[verb]]
    ended = worker(words, folder, SECONDS)
    if ended.fault or ended.code:
        return ended, None
    if verb == "resume":
        return ended, what_is_left(folder / "run")
    try:
        return ended, _timeless(json.loads(ended.out))
    except ValueError:
        return ended, ended.out


def in_one_process(words: list[str]) -> int | None:
    """Without fsync and pictures, which damage by hand does not need, and with trainings of races as forks."""
    os.fsync = lambda fd: None
    Figure.save_images = lambda *_: None  # type: ignore[assignment, method-assign]
    ForkingWorker.train = _train_in_fork  # type: ignore[method-assign]
    return command(*words)()


def _train_in_fork(self: ForkingWorker, folder: Path) -> dict[str, Any]:
    child = os.fork()
    if not child:
        log = os.open(folder / "train.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 2)
        train_alone(folder)
    _, status = os.waitpid(child, 0)
    return {"code": os.waitstatus_to_exitcode(status)}


def what_is_left(folder: Path) -> dict[str, Any]:
    """Everything about a finished run that does not tell the time."""
    run, found = Run(folder), dict[str, Any]()
    for name, kept in (("best", run.best), ("last", run.last)):
        if kept.empty:
            continue
        with warnings.catch_warnings(action="ignore"):  # about checkpoints that are damaged still
            checkpoint = kept.load()
        tensors = sorted((checkpoint.weights | checkpoint.training).items())
        content = b"".join(key.encode() + value.numpy().tobytes() for key, value in tensors)
        facts = {key: value for key, value in checkpoint.facts.items() if key != "metrics"}
        found[name] = [checkpoint.step, sha256(content).hexdigest(), facts]
    found["results"] = _timeless(json.loads((folder / "results.json").read_bytes()))
    found["log"] = [_timeless(json.loads(line)) for line in run.metrics.read_bytes().splitlines()]
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(one) for key, one in value.items() if not any(part in key for part in TIMED)}
    return [_timeless(one) for one in value] if isinstance(value, list) else value


def copy(target: Target, folder: Path) -> None:
    """A fresh copy of the data and the run, in the same place every time: paths are part of messages."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in target.place.parent.iterdir():
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    shutil.copytree(target.place, folder / "run")


def files_of(run: Path) -> list[Path]:
    return sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file())


def flip(data: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(8 * len(data))
    return data[: place // 8] + bytes([data[place // 8] ^ 1 << place % 8]) + data[place // 8 + 1 :]


def cut(data: bytes, dice: random.Random) -> bytes:
    ends = [place for place, byte in enumerate(data[:-1], start=1) if byte == NEWLINE]
    return data[: dice.choice(ends) if ends and dice.random() < 0.5 else dice.randrange(len(data))]


def overwrite(data: bytes, dice: random.Random) -> bytes:
    begin = dice.randrange(len(data))
    size = min(2 ** dice.randrange(12), len(data) - begin)
    return data[:begin] + dice.choice((bytes(size), dice.randbytes(size))) + data[begin + size :]


def move(data: bytes, dice: random.Random) -> bytes:
    """A piece that is there twice, or no more."""
    begin, end = sorted(dice.choices(range(len(data) + 1), k=2))
    return data[:begin] + data[begin:end] * dice.choice((0, 2)) + data[end:]


MUTATIONS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flip": flip,
    "cut": cut,
    "overwrite": overwrite,
    "move": move,
}


def damage(run: Path, other: Path, dice: random.Random, kind: str = "", name: Path | str = "") -> tuple[str, str]:
    """Damages one file of a run, in this way if one is given; returns how and which."""
    names = files_of(run)
    if not kind:
        name, kind = dice.choice(names), dice.choice([*MUTATIONS, *MUTATIONS, "swap", "replace", "delete"])
    path = run / name
    data = path.read_bytes()
    if kind == "delete" or not data:
        path.unlink()
        return "delete", str(name)
    if kind.startswith("swap"):
        second = run / (kind.removeprefix("swap with ") if " " in kind else dice.choice(names))
        path.write_bytes(second.read_bytes())
        second.write_bytes(data)
        return f"swap with {second.relative_to(run)}", str(name)
    if kind == "replace":
        same = other / name
        path.write_bytes((same if same.exists() else other / dice.choice(files_of(other))).read_bytes())
        return kind, str(name)
    path.write_bytes(MUTATIONS[kind](data, dice))
    return kind, str(name)


def without_newest(run: Path, names: Sequence[str]) -> bool:
    """Removes the newest checkpoint of these folders; False where there is no other to fall back on."""
    removed = False
    for name in names:
        steps = sorted((run / name).glob("step-*"))
        if len(steps) > 1:
            shutil.rmtree(steps[-1])
            removed = True
    return removed


def references(worker: Worker, target: Target, verb: str, folder: Path) -> list[Any]:
    """What a command gives on the undamaged folder, and after the loss of the newest checkpoints."""
    found = []
    for lost in ((), (), ("best",), ("last",), ("best", "last"), ("rnn/seed-1/best",), ("trial-001/best",)):
        copy(target, folder)
        if not lost or without_newest(folder / "run", lost):
            ended, result = use(worker, target, verb, folder)
            assert lost or (not ended.code and not ended.fault), (target, verb, ended)
            found.append(result)
    assert found[0] == found[1], f"{target.kind}: {verb} gives different results on the same folder"
    return found[1:]


def judge(ended: Outcome, result: Any, expected: list[Any]) -> str:
    """The outcome of a command on a damaged folder in one or two words."""
    if ended.fault:
        return ended.fault
    if ended.code:
        return "refused"
    if result == expected[0]:
        return "identical"
    return "older checkpoint, with a warning" if ended.warned and result in expected[1:] else "silent"


ALLOWED = {"refused", "identical", "older checkpoint, with a warning"}


class Cases:
    """Damaged copies of targets in one folder, used by one worker."""

    def __init__(self, targets: list[Target], folder: Path):
        self.targets, self.folder, self.worker = targets, folder, Worker(in_one_process)
        self.expected: dict[tuple[str, str], list[Any]] = {}

    def numbered(self, number: int, seed: int) -> dict[str, Any]:
        dice = random.Random(f"{seed}/{number}")
        target = self.targets[dice.randrange(len(self.targets))]
        verb = dice.choices(list(target.commands), VERBS[: len(target.commands)])[0]
        return {"case": number, **self.one(target, verb, dice)}

    def one(self, target: Target, verb: str, dice: random.Random, kind: str = "", name: str = "") -> dict[str, Any]:
        """What was done, and the outcome."""
        key = target.place.name, verb
        if key not in self.expected:
            self.expected[key] = references(self.worker, target, verb, self.folder)
        copy(target, self.folder)
        kind, name = damage(self.folder / "run", target.other, dice, kind, name)
        ended, result = use(self.worker, target, verb, self.folder)
        outcome = judge(ended, result, self.expected[key])
        words = {"run": target.place.name, "file": name, "damage": kind, "command": verb}
        return {**words, "outcome": outcome, "said": ended.err[-500:]}

    def mended(self, violation: dict[str, Any]) -> bool:
        target = next(one for one in self.targets if one.place.name == violation["run"])
        how = violation["command"], random.Random(1), violation["damage"], violation["file"]
        return all(self.one(target, *how)["outcome"] in ALLOWED for _ in range(REPETITIONS))


def main() -> None:
    reader = parser("corruption", __doc__, count=20_000, kinds=[*RECIPES, *SEVERAL], seed=1, repeats=True)
    options = reader.parse_args()
    import_everything()
    campaign = Campaign(options)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        cases = Cases(build(Path(place), options.kinds), Path(place) / "work")
        if options.again:
            campaign.repeat(cases.mended)
            cases.worker.close()
            return
        for number in campaign.numbers():
            found = cases.numbered(number, options.seed)
            campaign.tally(found["outcome"], *([] if found["outcome"] in ALLOWED else [found]))
        cases.worker.close()
    campaign.end()


if __name__ == "__main__":
    main()
