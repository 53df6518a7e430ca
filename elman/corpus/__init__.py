"""Text, records and synthetic languages as streams of documents."""

from elman.corpus.config import DataConfig
from elman.corpus.corpus import Corpus, open_corpus, resolve
from elman.corpus.description import Description, describe
from elman.corpus.document import Document, Mark, Repairs
from elman.corpus.parallel import Pair, read_pairs

__all__ = [
    "Corpus",
    "DataConfig",
    "Description",
    "Document",
    "Mark",
    "Pair",
    "Repairs",
    "describe",
    "open_corpus",
    "read_pairs",
    "resolve",
]
