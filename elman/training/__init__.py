"""Training: the training loop is an iterator of reports."""

from elman.training.config import TrainingConfig
from elman.training.distributed import World, joined
from elman.training.fit_counts import CountTrainer
from elman.training.loop import Trainer
from elman.training.reports import Report, Validation

__all__ = ["CountTrainer", "Report", "Trainer", "TrainingConfig", "Validation", "World", "joined"]
