"""A corpus of sentences whose words have tags: CoNLL columns and CoNLL-U, with the splits of any corpus."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from elman.corpus.config import DataConfig
from elman.corpus.conll import ColumnsConfig, Tagged, sentences
from elman.corpus.corpus import Corpus, Split
from elman.corpus.document import Document, Repairs
from elman.corpus.source_reader import SourceReader
from elman.corpus.sources import Source
from elman.errors import ConfigError, DataError


class TaggedConfig(DataConfig):
    """Where tagged sentences are, and which of their columns count."""

    columns: ColumnsConfig = ColumnsConfig()
    """Which columns hold words and tags."""

    scheme: Literal["auto", "none", "iob1", "bio", "bioes"] = "auto"
    """How tags mark entities, so that no impossible row of tags is given; auto finds out."""


NOTHING = Tagged(())


@dataclass(frozen=True, slots=True)
class Sentence(Document):
    """The words of a text, and the tag of each."""

    tagged: Tagged = NOTHING


class TaggedCorpus(Corpus):
    """`sentences(split)` streams them; splits, held-out parts and repairs are those of any corpus."""

    config: TaggedConfig
    names: ClassVar = staticmethod(lambda sentence: sentence.tagged.tags)

    def __init__(self, config: TaggedConfig):
        if not (config.train or config.valid or config.test):
            raise ConfigError("no data: give data.train a file with a word and its tag on each line")
        super().__init__(config.model_copy(update={"document": "record", "boundary": "reset"}))

    @classmethod
    def open(cls, **settings: Any) -> Self:
        return cls(TaggedConfig.make(settings, where="data"))

    def sentences(self, split: Split) -> Iterator[Tagged]:
        return (document.tagged for document in self.documents(split) if isinstance(document, Sentence))

    def fingerprint(self, split: Split) -> str:
        """As of any corpus, and with all that decides which columns are read."""
        facts = [super().fingerprint(split), self.config.columns.plain()]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def _read(self, sources: Iterable[Source], repairs: Repairs, passage: int | None = None) -> Iterator[Document]:
        for source in sources:
            if source.format in ("hub", "parquet", "jsonl"):
                raise DataError("holds no columns of words and tags", file=source.name, remedy="give a CoNLL file")
            for found in sentences(SourceReader(source, self.config, repairs), self.config.columns):
                text = " ".join(found.words)
                yield Sentence(text, found.source, found.line, len(text.encode()) + 1, tagged=found)
