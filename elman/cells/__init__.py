"""Recurrent cells. Importing a module here registers its cell in CELLS."""

from elman.cells import gru, lstm, rnn  # noqa: F401
from elman.cells.base import CELLS, Cell
from elman.cells.products import PastProduct

__all__ = ["CELLS", "Cell", "PastProduct"]
