"""Extreme data and settings for every task: each training ends with a usable run, or is refused in one sentence.

    python -m benchmarks.attack.numbers

A run is usable if `eval`, `predict` or `score` and, for language models, `generate` end with exit code 0 and no score
is NaN. Where scores are far worse than those of guessing, the output must say that training diverged.
"""

import io
import json
import math
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.attack.campaign import Campaign, parser
from elman.cli.main import main

LIMIT = 60  # seconds of one command
FAR = 30  # nats, or squared errors of the mean answer: worse than any guessing
WORDS = ("the", "cat", "dog", "sees", "likes", "a", "big", "bird")
FINE = ("usable", "refused")
SPLITS = ("train", "valid", "test")

Example = tuple[str, str]  # a text, and its label, tag of each word, translation or number


class Task(NamedTuple):
    settings: tuple[str, ...]
    suffix: str
    lines: Callable[[list[Example]], str]
    answer: Callable[[int], str] | None  # of an example by its number
    verbs: tuple[str, ...]


def _table(examples: list[Example]) -> str:
    return "label\ttext\n" + "".join(f"{answer}\t{text}\n" for text, answer in examples)


def _tagged(examples: list[Example]) -> str:
    return "\n".join("".join(f"{word}\t{answer}\n" for word in text.split()) for text, answer in examples)


def _plain(examples: list[Example]) -> str:
    return "".join(f"{text}\n" for text, _ in examples)


def _pairs(examples: list[Example]) -> str:
    return "".join(f"{text}\t{answer}\n" for text, answer in examples)


SMALL = ("--model.hidden_size", "8")
TWO_SIDED = ("--model.encoder.hidden_size", "8", "--model.decoder.hidden_size", "8", "--search.beam_size", "2")
WORD = ("--tokenizer", "word")
TASKS = {
    "language model": Task((*WORD, *SMALL), "txt", _plain, None, ("score", "generate")),
    "language model, state carried": Task(("--data.boundary", "carry", *SMALL), "txt", _plain, None, ("score",)),
    "n-gram": Task(("--model", "ngram", *WORD), "txt", _plain, None, ("score", "generate")),
    "masked": Task(("--model", "masked", *WORD, *SMALL), "txt", _plain, None, ("score", "predict")),
    "classify": Task(("--task", "classify", *SMALL), "tsv", _table, lambda k: "xyz"[k % 3], ("predict",)),
    "classify, several labels": Task(
        ("--task", "classify", "--data.separator", ",", *SMALL), "tsv", _table,
        lambda k: ("x", "x,y", "y,z", "")[k % 4], ("predict",),
    ),
    "regress": Task(("--task", "regress", *SMALL), "tsv", _table, lambda k: f"{k % 7 - 2.5}", ("predict",)),
    "tag": Task(("--task", "tag", *SMALL), "conll", _tagged, lambda k: ("O", "B-X", "B-Y")[k % 3], ("predict",)),
    "translate": Task(("--task", "translate", *TWO_SIDED), "tsv", _pairs, lambda k: WORDS[-1 - k % 4], ("predict",)),
}  # fmt: skip


def usual(task: Task) -> list[Example]:
    texts = [" ".join(WORDS[(k * j) % 8] for j in range(1, 2 + k % 5)) for k in range(24)]
    return [(text, task.answer(k) if task.answer else "") for k, text in enumerate(texts)]


def same(text: str = "", count: int = 24) -> Callable[[Task], list[Example]]:
    """Usual examples, all with the same answer, and with this text if there is one."""
    return lambda task: [(text or one, usual(task)[1][1]) for one, _ in usual(task)[:count]]


def answered(answer: str) -> Callable[[Task], list[Example]]:
    """Usual examples, every second one with this answer."""
    return lambda task: [(text, answer if k % 2 else own) for k, (text, own) in enumerate(usual(task))]


class Case(NamedTuple):
    data: Callable[[Task], list[Example]] = usual
    settings: tuple[str, ...] = ()


CASES = {
    "learning rate 1e6": Case(settings=("--training.learning_rate", "1e6")),
    "learning rate 1e6, plain descent": Case(
        settings=("--training.learning_rate", "1e6", "--training.optimizer", "sgd", "--training.clip_grad_norm", "0")
    ),
    "texts of nan": Case(lambda task: [("NaN inf NAN", own) for _, own in usual(task)]),
    "answers of nan": Case(answered("NaN")),
    "answers of inf": Case(answered("-inf")),
    "answers near the largest number": Case(answered("1e308")),
    "answers near 0": Case(answered("1e-320")),
    "one answer": Case(same()),
    "one token": Case(same("cat", 1)),
    "batch larger than data": Case(settings=("--training.batch_size", "100000")),
    "sequences of length 1": Case(settings=("--training.sequence_length", "1")),
    "0 epochs": Case(settings=("--training.max_epochs", "0")),
    "0 steps": Case(settings=("--training.max_steps", "0")),
    "vocabulary of one": Case(same("cat cat cat")),
    "one character": Case(same("a")),
}


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def refused(self) -> bool:
        last = ["", *self.err.strip().splitlines()][-1]
        return self.code in (1, 2) and last.startswith("elman: ") and "unexpected" not in last


def command(*words: str, stdin: str = "") -> Ended:
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    try:
        with redirect_stdout(out), redirect_stderr(err), _time_limit():
            main(words)
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except TimeoutError:
        code, _ = 124, err.write(f"no end after {LIMIT} s")
    finally:
        sys.stdin = before
    return Ended(code, out.getvalue(), err.getvalue())


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def attack(task: Task, case: Case, folder: Path) -> tuple[str, str]:
    """`usable` or `refused` and what was said; or what went wrong, and the output."""
    examples, settings = case.data(task), [*task.settings, *case.settings]
    for split in SPLITS:
        path = folder / f"{split}.{task.suffix}"
        path.write_text(task.lines(examples))
        settings += [f"--data.{split}", str(path)]
    settings += ["--device", "cpu"]
    if not any("max_" in word for word in case.settings):
        settings += ["--training.max_steps", "6"]
    run = folder / "run"
    trained = command("train", *settings, "--run", str(run))
    if trained.refused:
        return "refused", trained.err.strip().splitlines()[-1]
    if trained.code:
        return f"train ended with {trained.code}", trained.err
    judged = command("eval", str(run), "--json")
    if judged.code:
        return f"eval ended with {judged.code}", trained.err + judged.err
    scores = json.loads(judged.out)
    bad = scores["mse"] / scores["baseline_mse"] if "mse" in scores else scores["loss"]
    if any(isinstance(value, float) and math.isnan(value) for value in scores.values()):
        return "a score is NaN", judged.out
    if (bad is None or bad >= FAR) and "diverged" not in trained.err + trained.out:
        return f"training diverged to {bad} without a word", trained.err + trained.out
    return _used(task, run)


def _used(task: Task, run: Path) -> tuple[str, str]:
    for verb in task.verbs:
        words, stdin = (
            (["--prompt", "the", "--max-tokens", "5"], "")
            if verb == "generate"
            else ([], "the cat <mask>\nzebra <mask>\n")
        )
        used = command(verb, str(run), *words, stdin=stdin)
        if used.code or "nan" in used.out:
            return f"{verb} ended with {used.code}", used.out + used.err
    return "usable", ""


def every() -> list[tuple[str, str]]:
    """All tasks with all cases, those of answers only where there are some."""
    return [(task, case) for task, case in product(TASKS, CASES) if TASKS[task].answer or "answer" not in case]


def attack_in_folder(pair: tuple[str, str]) -> tuple[str, str]:
    """How a (task, case) pair ended, in a folder of its own; and what was said."""
    name, kind = pair
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return attack(TASKS[name], CASES[kind], Path(folder))
        finally:
            os.chdir(here)


def whole() -> None:
    reader = parser("numbers", __doc__, count=10**6, seed=1)
    reader.add_argument("--only", default="", help="tasks or cases whose name contains this")
    options = reader.parse_args()
    pairs = [pair for pair in every() if options.only in ": ".join(pair)]
    options.count = min(options.count, len(pairs))
    campaign = Campaign(options)
    for number in campaign.numbers():
        end, said = attack_in_folder(pairs[number])
        about = ": ".join(pairs[number])
        campaign.tally(end, *([] if end in FINE else [f"{about}: {said[-2000:]}"]))
        if end == "refused":
            campaign.facts.setdefault("refused", []).append(f"{about}: {said}")
    campaign.end()


if __name__ == "__main__":
    whole()
