"""A corpus of tagged sentences: CoNLL columns and CoNLL-U, with the splits of any corpus."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from elman.corpus.config import DataConfig
from elman.corpus.conll import ColumnsConfig, TaggedSentence, sentences
from elman.corpus.corpus import ExampleCorpus
from elman.corpus.document import Document, Split
from elman.corpus.source_reader import SourceReader


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


class TaggedCorpus(ExampleCorpus):
    """`sentences(split)` streams tagged sentences; splits, held-out parts and repairs as in any corpus."""

    Config = TaggedConfig
    config: TaggedConfig
    expected = "a file with a word and its tag on each line"
    names: ClassVar = staticmethod(lambda sentence: sentence.tagged.tags)

    def sentences(self, split: Split) -> Iterator[TaggedSentence]:
        return (document.tagged for document in self.documents(split) if isinstance(document, TaggedDocument))

    def _facts(self, split: Split) -> list[Any]:
        return [self.config.columns.plain()]

    def _examples(self, reader: SourceReader) -> Iterator[TaggedDocument]:
        for tagged in sentences(reader, self.config.columns):
            text = " ".join(tagged.words)
            yield TaggedDocument(text, tagged.source, tagged.line, len(text.encode()) + 1, tagged=tagged)
