"""Training: the training loop is an iterator of reports."""

from typing import TYPE_CHECKING

from elman.lazy import lazy_names

if TYPE_CHECKING:
    from elman.training.config import TrainingConfig
    from elman.training.distributed import World, joined
    from elman.training.loop import CountTrainer, Trainer
    from elman.training.reports import Report, Validation

__getattr__, __dir__ = lazy_names(__name__, __file__)
