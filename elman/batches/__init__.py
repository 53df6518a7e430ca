"""Documents as ids on disk, and the batches that models train and are judged on."""

from elman.batches.batch import Batch, Batches
from elman.batches.documents import Documents
from elman.batches.store import Facts, TokenStore
from elman.batches.stream import Lanes, Stream

__all__ = ["Batch", "Batches", "Documents", "Facts", "Lanes", "Stream", "TokenStore"]
