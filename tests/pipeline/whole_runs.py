"""What the tests of whole runs share; the comparison of two runs is that of the attacks."""

import signal
import sys

from processes import ROOT

import elman

sys.path.insert(0, str(ROOT))  # benchmarks are beside the package

from benchmarks.attack import kinds

__all__ = ["at_step", "left", "notes", "run"]


def left(folder):
    """What a finished run has left, under any name, but for times."""
    return kinds.left(folder, plots=False)


def run(recipe, folder="run", resume=True, until=None, signals=None, **settings):
    """The reports of a run, up to the first for which `until` holds; `signals` are raised at kinds of report."""
    reports = []
    for report in elman.iterate(recipe, run=folder, resume=resume, overrides=settings or None):
        reports.append(report)
        if until and until(report):
            break
        for number in (signals or {}).get(report.kind, ()):
            signal.raise_signal(number)
    return reports


def notes(reports):
    return [report.values["text"] for report in reports if report.kind == "note"]


def at_step(number):
    return lambda report: report.kind == "save" and report.step >= number
