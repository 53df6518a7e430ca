"""Text, records and synthetic languages as streams of documents."""

from typing import TYPE_CHECKING

from elman.corpus import record_formats  # they register themselves
from elman.lazy import lazy_names

if TYPE_CHECKING:
    from elman.corpus.config import RECORD_FORMATS, Column, DataConfig, Fields, RecordFormat
    from elman.corpus.corpus import Corpus, open_corpus, resolve
    from elman.corpus.description import Description, describe
    from elman.corpus.document import Document, Mark, PairDocument, Repairs
    from elman.corpus.labelled_corpus import LabelledConfig, LabelledCorpus, LabelledText, LabelSet, label_rows
    from elman.corpus.pair_corpus import Pair, PairCorpus, PairsConfig, read_pairs
    from elman.corpus.source_reader import SourceReader
    from elman.corpus.tagged_corpus import (
        ColumnsConfig,
        TaggedConfig,
        TaggedCorpus,
        TaggedDocument,
        TaggedSentence,
        read_tagged,
    )
    from elman.corpus.tags import LegalTransitions, TagSet

__getattr__, __dir__ = lazy_names(__name__, __file__)
