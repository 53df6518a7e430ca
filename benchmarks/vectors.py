"""Pretrained word vectors on SST-2: sentences only, with vectors made from other texts, against random ones.

    python -m benchmarks.vectors                                   three seeds of each
    python -m benchmarks.vectors --ways random,counts --seeds 1    a quick look
    python -m benchmarks.vectors --keep FOLDER                     what is in the folder is not made again

Vectors are made from film reviews and the training sentences, without their labels: from counts (count_vectors.py), or
by word2vec (gensim). The models are the same otherwise, and `elman eval A B` tests their difference in pairs. The width
of the window, of the vectors and their scale were chosen on validation sentences. Also timed: reading a file of 1 GB.
Data: ELMAN_DATA (docs/data.md); needs scipy. Results go to benchmarks/results.
"""

import argparse
import gzip
import json
import os
import re
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.count_vectors import count_vectors, save
from benchmarks.reporting import write
from elman.corpus.word_vectors import read_vectors
from elman.evaluation import paired_difference
from elman.pipeline import iterate
from elman.pipeline.evaluate import compare_runs, result_of

REVIEWS = [f"movie_reviews/{split}.tsv.gz" for split in ("train", "valid", "test")]
TEXTS = [*REVIEWS, "sst/binary.train.tsv"]
WIDTH, WINDOW = 100, 10
SETTINGS: dict[str, Any] = {
    "task": "classify",
    "device": "cpu",
    "tokenizer": {"type": "word", "lowercase": True, "split": "whitespace", "min_frequency": 1},
    "model": {
        "pattern": [{"bidirectional": {"layer": "gru"}}],
        "hidden_size": 64,
        "embedding_size": WIDTH,
        "pooling": "max",
        "dropout": 0.5,
    },
    "training": {"batch_size": 50, "learning_rate": 1e-3},
    "evaluation": {"choose_by": "accuracy"},
}
WAYS: dict[str, dict[str, Any]] = {  # to begin: settings of the model
    "random": {},
    "counts": {"vectors": "counts.bin"},
    "counts as written": {"vectors": "counts.bin", "normalize_vectors": False},
    "counts frozen": {"vectors": "counts.bin", "freeze_vectors": True},
    "word2vec": {"vectors": "word2vec.bin"},
}
GIGABYTE = 10**9
CONTRACTION = re.compile(r"(?<=\w)(n't|'(?:s|re|ve|ll|d|m))(?= |$)")
SPELLINGS = [("( ", "-lrb- "), (" )", " -rrb-"), ('"', "''"), (". . .", "...")]


def sentences(home: Path) -> Iterator[list[str]]:
    """Words of all lines, without labels, with contractions and brackets as SST has them (`do n't`, `-lrb-`)."""
    for name in TEXTS:
        path = home / name
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            for line in lines:
                text = CONTRACTION.sub(r" \1", line.partition("\t")[2].lower())
                for found, spelled in SPELLINGS:
                    text = text.replace(found, spelled)
                yield text.split()


def by_counts(home: Path, to: Path) -> dict[str, Any]:
    words, vectors = count_vectors(sentences(home), WIDTH, WINDOW)
    save(to, words, vectors)
    return {"width": WIDTH, "window": WINDOW, "words": len(words)}


def by_word2vec(home: Path, to: Path) -> dict[str, Any]:
    from gensim.models import Word2Vec

    settings = {"vector_size": WIDTH, "window": 5, "min_count": 1, "sg": 1, "negative": 5, "epochs": 10}
    model = Word2Vec(list(sentences(home)), workers=1, seed=1, **settings)
    model.wv.save_word2vec_format(str(to), binary=True)
    return {**settings, "words": len(model.wv)}


MAKERS: dict[str, Callable[[Path, Path], dict[str, Any]]] = {"counts.bin": by_counts, "word2vec.bin": by_word2vec}


def once(note: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `make` found, with its time; read from the note where it was made before."""
    if not note.exists():
        began = time.monotonic()
        found = make()
        note.write_text(json.dumps({**found, "seconds": time.monotonic() - began}))
    kept: dict[str, Any] = json.loads(note.read_text())
    return kept


def train(home: Path, folder: Path, way: str, seed: int, epochs: int) -> dict[str, Any]:
    """Scores of a training, and what was said of the vectors."""
    run = folder / f"{way}-{seed}"
    data = {split: str(home / f"sst/binary.{split}.tsv") for split in ("train", "valid", "test")}
    model = {**SETTINGS["model"], **WAYS[way]}
    if file := model.get("vectors"):
        model["vectors"] = str(folder / file)
    recipe = {**SETTINGS, "seed": seed, "data": data, "model": model}
    recipe["training"] = SETTINGS["training"] | {"max_epochs": epochs}
    notes: list[str] = []
    found: dict[str, Any] = {}
    for report in iterate(recipe, run=run, resume=run.exists()):
        notes += [report.values["text"].replace(f"{folder}/", "")] if report.kind == "note" else []
        found = report.values if report.kind == "result" else found
    return {**{split: found[split]["accuracy"] for split in ("valid", "test")}, "notes": notes}


def tested(folder: Path, way: str, seeds: list[int]) -> dict[str, Any]:
    """Paired tests on the test sentences of this beginning against a random one: by seed, and of the means over seeds,
    which tell how a sentence fares with more certainty than a single run."""
    pairs = [(folder / f"random-{seed}", folder / f"{way}-{seed}") for seed in seeds]
    single = [compare_runs(*pair) for pair in pairs]
    means = [np.mean([result_of(pair[side])[0].values for pair in pairs], axis=0) for side in (0, 1)]
    shown = ("difference", "interval", "p_value")
    return {
        "by seed": [{name: one[name] for name in shown} for one in single],
        "means over seeds": paired_difference(*means).plain(),
    }


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
    reading = time.monotonic() - began
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    path.unlink()
    assert found.exact == len(words)
    return {"bytes": size, "rows": count, "kept": len(words), "reading": reading, "memory_grown_by": grown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", default=",".join(WAYS), help="(default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="folder for the vectors and the runs, which are used again")
    options = parser.parse_args()
    home, ways = Path(os.environ.get("ELMAN_DATA", "data")), options.ways.split(",")
    with tempfile.TemporaryDirectory() as place:
        folder = options.keep or Path(place)
        folder.mkdir(exist_ok=True)
        results: dict[str, Any] = {"texts": TEXTS, "settings": SETTINGS, "epochs": options.epochs}
        results |= {"vectors": {}, "ways": {}}
        for file in dict.fromkeys(WAYS[way]["vectors"] for way in ways if WAYS[way]):
            make = MAKERS[file]
            results["vectors"][file] = once(folder / f"{file}.json", lambda: make(home, folder / file))  # noqa: B023
        seeds = [*range(1, options.seeds + 1)]
        for seed in seeds:
            for way in ways:
                note = folder / f"{way}-{seed}.json"
                found = once(note, lambda: train(home, folder, way, seed, options.epochs))  # noqa: B023
                results["ways"].setdefault(way, []).append(found)
                print(seed, way, found["valid"], found["test"], flush=True)
        results["against random"] = {way: tested(folder, way, seeds) for way in ways if way != "random"}
        results["reading"] = once(folder / "reading.json", lambda: time_reading(folder))
        print(json.dumps(results["against random"], indent=1), write("vectors", results), sep="\n")


if __name__ == "__main__":
    main()
