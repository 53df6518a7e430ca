"""Tokenized documents on disk, and batches for training and evaluation."""

from elman.batches.batch import Batch, Batches
from elman.batches.documents import Documents
from elman.batches.examples import Buckets, Examples, ExampleStore, Ragged, collate, length_batches
from elman.batches.store import TextCounts, TokenStore
from elman.batches.stream import ParallelStreams, Stream
from elman.batches.tagging import WordsConfig, WordTable
