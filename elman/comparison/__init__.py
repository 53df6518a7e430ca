"""Races: several model families on the same data at a matched budget, ranked with confidence intervals and costs.

Sweeps: one recipe with many settings, to find the best.
"""

from elman.comparison.api import compare, sweep
from elman.comparison.config import DEMO, EMBEDDED, Race
from elman.comparison.race import RaceRun, read_race
from elman.comparison.report import write_report
from elman.comparison.results import RaceResults, gather, read_results
