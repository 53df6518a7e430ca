"""Synthetic tasks: each needs one ability, with published results of model families."""

from elman.corpus.synthetic_tasks import adding, copy_memory, parity, recall, selective_copying  # noqa: F401
from elman.corpus.synthetic_tasks.base import TASKS, Check, Claim, SyntheticExamples, SyntheticTask

__all__ = ["TASKS", "Check", "Claim", "SyntheticExamples", "SyntheticTask"]
