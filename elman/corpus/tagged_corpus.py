"""A corpus of tagged sentences: CoNLL columns and CoNLL-U, with the splits of any corpus."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from elman.corpus.config import DataConfig
from elman.corpus.conll import ColumnsConfig, TaggedSentence, sentences
from elman.corpus.corpus import Corpus
from elman.corpus.document import Document, Repairs, Split
from elman.corpus.source_reader import SourceReader
from elman.corpus.sources import Source
from elman.errors import ConfigError


class TaggedConfig(DataConfig):
    """Columns of tagged sentences, and the tagging scheme."""

    columns: ColumnsConfig = ColumnsConfig()
    """Columns of words and tags."""

    scheme: Literal["auto", "none", "iob1", "bio", "bioes"] = "auto"
    """Tagging scheme of entities, which excludes invalid tag sequences; auto: detected from the data."""


EMPTY = TaggedSentence(())


@dataclass(frozen=True, slots=True)
class TaggedDocument(Document):
    """A text with its words and tags."""

    tagged: TaggedSentence = EMPTY


class TaggedCorpus(Corpus):
    """`sentences(split)` streams tagged sentences; splits, held-out parts and repairs as in any corpus."""

    config: TaggedConfig
    names: ClassVar = staticmethod(lambda sentence: sentence.tagged.tags)

    def __init__(self, config: TaggedConfig):
        if not (config.train or config.valid or config.test):
            raise ConfigError("no data: give data.train a file with a word and its tag on each line")
        super().__init__(config.model_copy(update={"document": "record", "boundary": "reset"}))

    @classmethod
    def open(cls, **settings: Any) -> Self:
        return cls(TaggedConfig.make(settings, where="data"))

    def sentences(self, split: Split) -> Iterator[TaggedSentence]:
        return (document.tagged for document in self.documents(split) if isinstance(document, TaggedDocument))

    def fingerprint(self, split: Split) -> str:
        """As in any corpus, plus the column settings."""
        facts = [super().fingerprint(split), self.config.columns.plain()]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def _read(self, sources: Iterable[Source], repairs: Repairs, passage: int | None = None) -> Iterator[Document]:
        for source in sources:
            for tagged in sentences(SourceReader(source, self.config, repairs), self.config.columns):
                text = " ".join(tagged.words)
                yield TaggedDocument(text, tagged.source, tagged.line, len(text.encode()) + 1, tagged=tagged)
