"""Recurrent cells. Importing a module here registers its cell in CELLS."""

from elman.cells import gru, lstm, rnn  # noqa: F401
from elman.cells.base import CELLS, Cell, PastProduct

__all__ = ["CELLS", "Cell", "PastProduct"]
