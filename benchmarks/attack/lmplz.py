"""Estimate n-grams of the same text with KenLM's lmplz and with elman, and compare every n-gram of both ARPA files.

    python -m benchmarks.attack.lmplz

A case is a generated corpus, with its own number of words, lengths of lines, order and pruning; the first is WikiText-2
where ELMAN_DATA has it (docs/data.md). Both files must list the same n-grams, and no probability and no back-off weight
may differ by more than 0.0001 in base 10. Generated corpora agree to the rounding of the files. On WikiText-2 the
discounts of lmplz are those of 3,323 words with two contexts and 6,003 with three, where there are 3,324 and 6,002:
rare words differ by 0.00008. Where a discount cannot be estimated, both take 0.5, 1 and 1.5.

lmplz is the target `lmplz` of CMake in the source of the package kenlm on PyPI, and needs Boost.
"""

import gzip
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.attack.campaign import Campaign, parser
from elman.batches import TokenStore
from elman.corpus.document import Document
from elman.models.ngram import NGram, NGramConfig, write_arpa
from elman.tokenizers import train_tokenizer

TOLERANCE = 1e-4  # of logarithms in base 10
UNKNOWN = "unknown-word"  # for <unk> in a text, which lmplz would leave out
Entries = dict[str, tuple[float, float]]
FALLBACK = ("--discount_fallback", "0.5", "1", "1.5")


class Corpus(NamedTuple):
    lines: list[str]
    order: int
    prune: Sequence[int]
    """Counts up to which n-grams of each length are left out, as lmplz has them."""


class Agreement(NamedTuple):
    ngrams: int
    largest: float
    """Difference of any two logarithms in base 10."""
    missing: list[str]
    """N-grams that one of the two files does not have, a few of them."""

    @property
    def wrong(self) -> list[str]:
        found = [f"in one file only: {name}" for name in self.missing]
        return found + [f"logarithms differ by {self.largest:.2g}"] * (self.largest > TOLERANCE)


def generated(seed: str) -> Corpus:
    """Words by Zipf's law, each after one of a few others, so that n-grams of all counts and lengths come up."""
    dice = random.Random(seed)
    size, order = dice.choice((20, 100, 1000)), dice.randint(2, 5)
    words = [f"w{number}" for number in range(size)]
    weights = [1 / (rank + 1) for rank in range(size)]
    after = {word: dice.choices(words, weights, k=4) for word in words}
    lines = []
    for _ in range(dice.choice((200, 1000, 3000))):
        line = dice.choices(words, weights)
        for _ in range(dice.randint(0, 14)):
            line += dice.choices(after[line[-1]]) if dice.random() < 0.6 else dice.choices(words, weights)
        lines.append(" ".join(line))
    least = 0 if dice.random() < 0.6 else dice.randint(1, 2)
    return Corpus(lines, order, [0, *(least * (length > 1) for length in range(1, order))])


def wikitext() -> Iterator[tuple[str, Corpus]]:
    path = Path(os.environ.get("ELMAN_DATA", "data")) / "wikitext2" / "train.txt.gz"
    if path.is_file():
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        yield "WikiText-2", Corpus([line.strip().replace("<unk>", UNKNOWN) for line in lines], 3, [0] * 3)


def agreement(theirs: Entries, ours: Entries) -> Agreement:
    both = theirs.keys() & ours.keys()
    missing = sorted(theirs.keys() ^ ours.keys())[:5]
    differences = (abs(one - other) for name in both for one, other in zip(theirs[name], ours[name], strict=True))
    return Agreement(len(both), max(differences, default=0.0), missing)


def of_lmplz(corpus: Corpus, folder: Path) -> Entries:
    text, path = folder / "text.txt", folder / "theirs.arpa"
    text.write_text("".join(f"{line}\n" for line in corpus.lines), encoding="utf-8")
    command = ["lmplz", "-o", str(corpus.order), "-S", "300M", "-T", str(folder / "sort-"), *FALLBACK]
    command += ["--text", str(text), "--arpa", str(path), "--prune", *map(str, corpus.prune)]
    subprocess.run(command, check=True, capture_output=True)
    return _entries(path)


def of_elman(corpus: Corpus, folder: Path, smoothing: str = "modified-kneser-ney") -> Entries:
    tokenizer = train_tokenizer("word", corpus.lines)
    documents = (Document(line) for line in corpus.lines)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        store = TokenStore.build(documents, tokenizer, Path(place), "train")
        kept = {"order": corpus.order, "prune": [most + 1 for most in corpus.prune]}
        model = NGram(NGramConfig.make({**kept, "smoothing": smoothing}), tokenizer.vocab_size)
        list(model.fit(store))
    path = folder / "ours.arpa"
    write_arpa(model, [tokenizer.token(id) for id in range(tokenizer.vocab_size)], path)
    return _entries(path)


def _entries(path: Path) -> Entries:
    """The logarithms of all n-grams of a file: probability, and back-off weight, which a file may leave out."""
    found = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            fields = line.rstrip("\n").split("\t")
            if len(fields) > 1 and fields[1] != "<s>":
                found[fields[1]] = (float(fields[0]), float(fields[2]) if len(fields) > 2 else 0.0)
            elif len(fields) > 1:  # its probability is never used: lmplz writes 0, others -99
                found[fields[1]] = (0.0, float(fields[2]))
    return found


def main() -> None:
    options = parser("lmplz", __doc__, count=200, seed=1).parse_args()
    if shutil.which("lmplz") is None:
        raise SystemExit("lmplz is not on the PATH")
    campaign = Campaign(options)
    real: dict[int, Any] = dict(enumerate(wikitext()))
    with tempfile.TemporaryDirectory() as place:
        for number in campaign.numbers():
            name, corpus = real.get(number) or ("generated", generated(f"{campaign.seed}/{number}"))
            found = agreement(of_lmplz(corpus, Path(place)), of_elman(corpus, Path(place)))
            facts = campaign.facts
            facts["n-grams"] = facts.get("n-grams", 0) + found.ngrams
            facts["largest"] = max(facts.get("largest", 0.0), found.largest)
            told = f"no two logarithms of {facts['n-grams']:,} n-grams differ by more than {facts['largest']:.1g}"
            facts["note"] = f"{told} in base 10"
            campaign.tally(name, *(f"corpus {number}: {text}" for text in found.wrong))
    campaign.end()


if __name__ == "__main__":
    main()
