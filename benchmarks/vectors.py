"""Pretrained word vectors on SST-2: sentences only, with vectors trained on other texts, against random ones.

    python -m benchmarks.vectors                       three seeds of each
    python -m benchmarks.vectors --seeds 1 --epochs 2  a quick look

gensim trains the vectors, on film reviews, Brown and WikiText-2 and on the training sentences, without their labels;
both models are the same otherwise, and `elman eval A B` tests their difference in pairs. Also timed: reading a file of
1 GB. Data: ELMAN_DATA (docs/data.md); needs gensim. Results go to benchmarks/results.
"""

import argparse
import gzip
import json
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reporting import write
from elman.corpus.word_vectors import read_vectors
from elman.pipeline import iterate
from elman.pipeline.evaluate import compare_runs

TEXTS = ("movie_reviews/train.tsv.gz", "brown/train.txt.gz", "wikitext2/train.txt.gz", "sst/binary.train.tsv")
SETTINGS: dict[str, Any] = {
    "task": "classify",
    "device": "cpu",
    "tokenizer": {"type": "word", "lowercase": True, "split": "whitespace", "min_frequency": 1},
    "model": {
        "pattern": [{"bidirectional": {"layer": "gru"}}],
        "hidden_size": 64,
        "pooling": "max",
        "dropout": 0.5,
    },
    "training": {"batch_size": 50, "learning_rate": 1e-3},
    "evaluation": {"choose_by": "accuracy"},
}
WIDTH = 100
GIGABYTE = 10**9


def sentences(home: Path) -> Iterator[list[str]]:
    """Lower-cased words of all lines, without labels."""
    for name in TEXTS:
        path = home / name
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            for line in lines:
                text = line.partition("\t")[2] if ".tsv" in name else line
                if words := text.lower().split():
                    yield words


def train_vectors(home: Path, to: Path) -> dict[str, Any]:
    from gensim.models import Word2Vec

    settings = {"vector_size": WIDTH, "window": 5, "min_count": 2, "sg": 1, "negative": 5, "epochs": 5}
    began = time.monotonic()
    model = Word2Vec(list(sentences(home)), workers=1, seed=1, **settings)
    model.wv.save_word2vec_format(str(to), binary=True)
    return {**settings, "texts": TEXTS, "words": len(model.wv), "seconds": time.monotonic() - began}


def run(home: Path, folder: Path, seed: int, epochs: int, model: dict[str, Any]) -> dict[str, Any]:
    """Scores of a training, and what was said of the vectors."""
    data = {split: str(home / f"sst/binary.{split}.tsv") for split in ("train", "valid", "test")}
    recipe = {**SETTINGS, "seed": seed, "data": data, "model": SETTINGS["model"] | model}
    recipe["training"] = SETTINGS["training"] | {"max_epochs": epochs}
    notes: list[str] = []
    found: dict[str, Any] = {}
    began = time.monotonic()
    for report in iterate(recipe, run=folder):
        notes += [report.values["text"].replace(f"{folder.parent}/", "")] if report.kind == "note" else []
        found = report.values if report.kind == "result" else found
    scores = {split: found[split]["accuracy"] for split in ("valid", "test")}
    return {**scores, "notes": notes, "minutes": (time.monotonic() - began) / 60}


def time_reading(folder: Path) -> dict[str, Any]:
    """A GloVe file of 1 GB, of which 20,000 rows of 300 numbers are wanted."""
    dice, path, size, count = np.random.default_rng(0), folder / "large.txt", 0, 0
    rows = [" ".join(f"{number:.5f}" for number in dice.normal(size=300)).encode() for _ in range(500)]
    with path.open("wb") as file:
        while size < GIGABYTE:
            size += file.write(b"w%d %s\n" % (count, rows[count % 500]))
            count += 1
    words = [f"w{number}" for number in range(0, 5 * 20_000, 5)]
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    found = read_vectors(path, words)
    seconds = time.monotonic() - began
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    path.unlink()
    assert found.exact == len(words)
    return {"bytes": size, "rows": count, "kept": len(words), "seconds": seconds, "memory_grown_by": grown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="folder for the vectors and the runs; vectors in it are used again")
    options = parser.parse_args()
    home = Path(os.environ.get("ELMAN_DATA", "data"))
    with tempfile.TemporaryDirectory() as place:
        folder = options.keep or Path(place)
        file, told = folder / "vectors.bin", folder / "vectors.json"
        if not told.exists():
            told.write_text(json.dumps(train_vectors(home, file)))
        results: dict[str, Any] = {"vectors": json.loads(told.read_text()), "reading": time_reading(folder)}
        results |= {"settings": SETTINGS, "epochs": options.epochs, "seeds": []}
        for seed in range(1, options.seeds + 1):
            results["seeds"].append(compared(home, folder, seed, options.epochs, file))
            print(json.dumps(results["seeds"][-1], indent=1), flush=True)
            write("vectors", results)


def compared(home: Path, folder: Path, seed: int, epochs: int, file: Path) -> dict[str, Any]:
    """Both models with one random seed, and the paired test of their answers."""
    choices: dict[str, dict[str, Any]] = {"pretrained": {"vectors": str(file)}, "random": {}}
    runs = {name: folder / f"{name}-{seed}" for name in choices}
    found: dict[str, Any] = {
        name: run(home, runs[name], seed, epochs, {"embedding_size": WIDTH} | model) for name, model in choices.items()
    }
    test = compare_runs(*runs.values())
    return found | {"paired": {key: value for key, value in test.items() if key not in ("runs", "others")}}


if __name__ == "__main__":
    main()
