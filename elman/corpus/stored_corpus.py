"""A corpus whose splits are encoded in a run folder, so that evaluation opens no file that the run names."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NoReturn

from elman.config import Config
from elman.corpus.config import DataConfig
from elman.corpus.document import SPLITS, PairDocument, Repairs, Split
from elman.errors import DataError
from elman.files import atomic_write
from elman.untrusted import read_json

NAME = "corpus.json"


class CorpusFacts(Config):
    """What an encoded split does not say of its corpus."""

    document: Literal["line", "block", "file", "record"]
    """What a document is."""
    boundary: Literal["carry", "reset"]
    """Whether state is carried from one document to the next."""
    fingerprints: dict[Split, str]
    """Hash of each split."""

    @classmethod
    def of(cls, corpus: Any) -> "CorpusFacts":
        fingerprints = {split: corpus.fingerprint(split) for split in corpus.splits()}
        return cls(document=corpus.unit, boundary="carry" if corpus.carry else "reset", fingerprints=fingerprints)


class StoredCorpus:
    """In place of a `Corpus`, for encoded splits in `folder`. Its texts are not there, except for pairs."""

    language = None

    def __init__(self, folder: Path, config: DataConfig):
        self.folder, self.repairs = folder, Repairs()
        if not (folder / NAME).exists():
            self.documents()
        facts = read_json(folder / NAME, DataError)
        if not isinstance(facts, dict):
            raise DataError("not a JSON object", file=folder / NAME)
        self.facts = CorpusFacts.make(facts, where=str(folder / NAME))
        self.unit, self.carry = self.facts.document, self.facts.boundary == "carry"
        self.config = config.model_copy(update={"document": self.unit, "boundary": self.facts.boundary})

    def splits(self) -> list[Split]:
        return [split for split in SPLITS if split in self.facts.fingerprints]

    def fingerprint(self, split: Split) -> str:
        return self.facts.fingerprints[split]

    def documents(self, *_: Any) -> NoReturn:
        raise DataError("the run does not hold this text", file=self.folder, remedy="name it with --data")

    texts = sentences = documents

    def pairs(self, split: Split) -> Iterator[PairDocument]:
        path = pairs_of(self.folder, split)
        if not path.exists():
            self.documents()
        try:
            for number, (source, target, places) in enumerate([*read_json(path, DataError)], 1):
                size = len(source.encode()) + 1
                yield PairDocument(source, str(path), number, size, target=str(target), places=tuple(map(int, places)))
        except (TypeError, ValueError, AttributeError):
            raise DataError("not pairs of texts", file=path, remedy="name the text with --data") from None


def pairs_of(folder: Path, split: Split) -> Path:
    """The file of the pairs of a split, which are scored as texts."""
    return folder / f"{split}.pairs.json"


def keep_pairs(pairs: Iterator[PairDocument], folder: Path, split: Split) -> None:
    """Writes them where they are not yet."""
    path = pairs_of(folder, split)
    if not path.exists():
        rows = [(pair.text, pair.target, pair.places) for pair in pairs]
        atomic_write(path, json.dumps(rows, ensure_ascii=False).encode())
