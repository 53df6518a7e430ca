"""Speed on the machine at hand, beside peers in the same run; nothing is reported while a fast form is wrong."""

from elman.bench.suites import SUITES, Suite

__all__ = ["SUITES", "Suite"]
