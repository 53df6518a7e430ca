"""Recurrent cells. Importing a module here registers its cell in CELLS."""

from elman.cells import gru, lstm, rnn
from elman.cells.base import CELLS, Cell, PastProduct
