"""Run folders: everything one training leaves behind, whole after any crash."""

from elman.runs.checkpoint import Checkpoint, Shelf
from elman.runs.environment import environment
from elman.runs.files import RunWarning, atomic_write
from elman.runs.metrics import Metrics, read_metrics
from elman.runs.run import Run

__all__ = ["Checkpoint", "Metrics", "Run", "RunWarning", "Shelf", "atomic_write", "environment", "read_metrics"]
