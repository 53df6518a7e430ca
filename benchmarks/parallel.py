"""Non-autoregressive against autoregressive translation: sentences per second at batch 1, and BLEU.

    python -m benchmarks.parallel TEACHER STUDENT --source test2016.tok.de --target test2016.tok.en

The teacher decodes greedily; the student (elman distill) predicts all words in a few mask-predict iterations. Same
machine and sentences, interleaved rounds.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.reporting import show, write
from elman import load
from elman.bench.harness import compare, interleaved
from elman.evaluation import score_translations


def writer(model: Any, sentences: list[str], **search: Any) -> Any:
    def run() -> list[str]:
        written = [model.predict(sentence, **search)["target"] for sentence in sentences]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return written

    return run


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("teacher", type=Path)
    reader.add_argument("student", type=Path)
    reader.add_argument("--source", type=Path, required=True)
    reader.add_argument("--target", type=Path, required=True)
    reader.add_argument("--timed", type=int, default=100, help="sentences that are timed")
    reader.add_argument("--rounds", type=int, default=5)
    reader.add_argument("--device", default="auto")
    given = reader.parse_args()
    sources, targets = (path.read_text(encoding="utf-8").splitlines() for path in (given.source, given.target))
    teacher, student = load(given.teacher, given.device), load(given.student, given.device)
    settings: dict[str, dict[str, Any]] = {
        f"{passes} passes, {lengths} lengths": {"iterations": passes, "lengths": lengths}
        for passes, lengths in ((1, 1), (2, 2), (4, 2), (4, 3), (10, 5))
    }
    models = {"greedy": (teacher, {"beam_size": 1}), **{name: (student, own) for name, own in settings.items()}}
    few = sources[: given.timed]
    variants = {name: writer(model, few, **own) for name, (model, own) in models.items()}
    table = compare(interleaved(variants, given.rounds, warmup=1), against="greedy")
    models["beam 5"] = (teacher, {"beam_size": 5})
    for name, (model, own) in models.items():
        written = [answer["target"] for answer in model.predict(sources, **own)]
        found = score_translations(written, targets, samples=100)
        table[name] = table.get(name, {}) | {key: measure.value for key, measure in found.items()}
        print(name, json.dumps(table[name]), file=sys.stderr, flush=True)
    show("One sentence at a time", {name: row for name, row in table.items() if "ms" in row}, "greedy")
    print(write("parallel-decoding", table))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
