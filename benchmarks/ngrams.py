"""Modified Kneser-Ney on WikiText-2, one core: build time, memory, bytes per n-gram, and scoring against KenLM.

KenLM's Python module (`pip install kenlm`) scores sentence by sentence from the ARPA file written here, in the same
rounds. Its estimator lmplz is timed if it is on the PATH. Times are CPU time. Data: ELMAN_DATA (docs/data.md).
"""

import gzip
import math
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.reporting import show
from elman.batches import ParallelStreams, TokenStore
from elman.bench.harness import compare, interleaved
from elman.corpus import DataConfig, open_corpus
from elman.models.ngram import NGram, NGramConfig, write_arpa
from elman.tokenizers import Tokenizer, train_tokenizer

ORDER, BATCH = 5, 2**15
Split = Literal["train", "valid", "test"]


def prepared(folder: Path) -> tuple[dict[str, TokenStore], Tokenizer, list[str]]:
    """Token stores of train and test, the tokenizer, and the test lines."""
    home = Path(os.environ.get("ELMAN_DATA", "data")) / "wikitext2"
    splits: tuple[Split, ...] = ("train", "test")
    places: dict[Any, str] = {split: str(home / f"{split}.txt.gz") for split in splits}
    corpus = open_corpus(DataConfig(**places, document="line", valid_fraction=0), "word")
    tokenizer = train_tokenizer("word", (document.text for document in corpus.documents("train")))
    stores: dict[str, TokenStore] = {
        split: TokenStore.build(corpus.documents(split), tokenizer, folder, split) for split in splits
    }
    return stores, tokenizer, [document.text for document in corpus.documents("test")]


def score(model: NGram, store: TokenStore) -> float:
    """Total negative log-likelihood in nats."""
    total, state = 0.0, None
    with torch.inference_mode():
        for batch in ParallelStreams(store, 1, BATCH).epoch(0):
            losses, state = model.losses(batch.inputs, batch.targets, state, batch.lengths)
            total += float(losses.sum(dtype=torch.float64))
    return total


def kenlm_of(path: Path) -> Any:
    try:
        import kenlm
    except ImportError:
        return None
    config = kenlm.Config()
    config.show_progress = False
    return kenlm.Model(str(path), config)


def lmplz(lines: Iterable[str], folder: Path, rounds: int = 3) -> float | None:
    """CPU seconds of KenLM's estimator from text to ARPA file, best of some rounds."""
    program = shutil.which("lmplz")
    if program is None:
        return None
    text = folder / "train.txt"
    text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [program, "-o", str(ORDER), "-S", "1G", "-T", str(folder), "--text", str(text)]
    command += ["--arpa", str(folder / "lmplz.arpa"), "--skip_symbols"]  # which leaves <unk> out of the text
    seconds = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


def measure(rounds: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        began = time.process_time()
        stores, tokenizer, lines = prepared(Path(place))
        reading = time.process_time() - began
        before = _peak()
        builds = []
        for _ in range(3):
            model = NGram(NGramConfig(order=ORDER), tokenizer.vocab_size)
            began = time.process_time()
            list(model.fit(stores["train"]))
            builds.append(time.process_time() - began)
        memory = {"peak_mb": _peak(), "peak_before_mb": before}
        facts, tokens = model.facts(), stores["test"].facts.tokens
        path = Path(place) / "model.arpa"
        began = time.process_time()
        write_arpa(model, [tokenizer.token(id) for id in range(tokenizer.vocab_size)], path)
        results = {"ngrams": sum(facts["ngrams"]), "bytes_per_ngram": facts["bytes_per_ngram"], **memory}
        theirs = lmplz(_training_lines(), Path(place))
        results |= {"read_and_encode_s": reading, "lmplz_s": theirs}
        results |= {"build_over_lmplz": min(builds) / theirs if theirs else None}
        results |= {"text_to_model_over_lmplz": (reading + min(builds)) / theirs if theirs else None}
        results |= {"build_s": min(builds), "arpa_write_s": time.process_time() - began, "tokens": tokens}
        variants: dict[str, Any] = {"elman, batches": lambda: score(model, stores["test"])}
        perplexity = {"elman": math.exp(variants["elman, batches"]() / tokens)}
        judge = kenlm_of(path)
        if judge is not None:
            variants["kenlm, sentences"] = lambda: sum(judge.score(line) for line in lines)
            perplexity["kenlm"] = 10 ** (-variants["kenlm, sentences"]() / tokens)
        table = compare(interleaved(variants, rounds, warmup=1), "elman, batches")
    speeds = {name: tokens / row["ms"] * 1e3 for name, row in table.items()}
    show(f"{ORDER}-grams of WikiText-2: the test part, {tokens:,} tokens", table, "elman, batches")
    print(f"  tokens per second: {speeds}\n  {results}\n  perplexity {perplexity}")
    return {**results, "tokens_per_second": speeds, "perplexity": perplexity, "table": table}


def _training_lines() -> Iterator[str]:
    home = Path(os.environ.get("ELMAN_DATA", "data")) / "wikitext2"
    with gzip.open(home / "train.txt.gz", "rt", encoding="utf-8") as file:
        yield from (line.strip() for line in file)


def _peak() -> float:
    """Peak RSS of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
