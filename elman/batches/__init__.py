"""Documents as ids on disk, and the batches that models train and are judged on."""

from elman.batches.batch import Batch, Batches
from elman.batches.documents import Documents
from elman.batches.examples import Buckets, Examples, ExampleStore, Ragged, together
from elman.batches.store import TextCounts, TokenStore
from elman.batches.stream import Lanes, Stream
from elman.batches.tagging import WordsConfig, WordTable

__all__ = [
    "Batch",
    "Batches",
    "Buckets",
    "Documents",
    "ExampleStore",
    "Examples",
    "Lanes",
    "Ragged",
    "Stream",
    "TextCounts",
    "TokenStore",
    "WordTable",
    "WordsConfig",
    "together",
]
