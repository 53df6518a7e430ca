"""Synthetic tasks: each needs one ability, with published results of model families."""

from elman.corpus.synthetic_tasks import tasks  # noqa: F401  (they register themselves)
from elman.corpus.synthetic_tasks.base import TASKS, Check, Claim, SyntheticExamples, SyntheticTask

__all__ = ["TASKS", "Check", "Claim", "SyntheticExamples", "SyntheticTask"]
