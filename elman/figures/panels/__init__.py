"""Kinds of panels: each file has the data, the matplotlib drawing, the terminal text and the table of one kind."""

from elman.figures.panels.bars import Bars
from elman.figures.panels.base import Array, Cell, Panel, Values, as_array
from elman.figures.panels.coloured_text import ColouredText
from elman.figures.panels.heat_map import HeatMap
from elman.figures.panels.lines import SHARE, Curve, Lines
from elman.figures.panels.parallel import Parallel
from elman.figures.panels.scatter import Scatter
from elman.figures.panels.unit_timelines import UnitTimelines
