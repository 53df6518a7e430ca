"""Text, records and synthetic languages as streams of documents."""

from typing import TYPE_CHECKING

from elman.lazy import lazy_names

if TYPE_CHECKING:
    from elman.corpus.config import DataConfig
    from elman.corpus.conll import ColumnsConfig, Tagged, read_tagged
    from elman.corpus.corpus import Corpus, open_corpus, resolve
    from elman.corpus.description import Description, describe
    from elman.corpus.document import Document, Mark, PairDocument, Repairs
    from elman.corpus.labelled_corpus import Labelled, LabelledConfig, LabelledCorpus
    from elman.corpus.labels import LabelSet, label_rows
    from elman.corpus.pair_corpus import PairCorpus, PairsConfig
    from elman.corpus.pair_reader import Pair, read_pairs
    from elman.corpus.tagged_corpus import Sentence, TaggedConfig, TaggedCorpus
    from elman.corpus.tags import Legal, TagSet

__all__ = [
    "ColumnsConfig",
    "Corpus",
    "DataConfig",
    "Description",
    "Document",
    "LabelSet",
    "Labelled",
    "LabelledConfig",
    "LabelledCorpus",
    "Legal",
    "Mark",
    "Pair",
    "PairCorpus",
    "PairDocument",
    "PairsConfig",
    "Repairs",
    "Sentence",
    "TagSet",
    "Tagged",
    "TaggedConfig",
    "TaggedCorpus",
    "describe",
    "label_rows",
    "open_corpus",
    "read_pairs",
    "read_tagged",
    "resolve",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
