"""Races: several model families on the same data at a matched budget, ranked with confidence intervals and costs."""

from elman.comparison.api import compare
from elman.comparison.config import DEMO, EMBEDDED, Race
from elman.comparison.race import RaceRun, read_race
from elman.comparison.report import write_report
from elman.comparison.results import RaceResults, gather, read_results
