"""How a model is judged."""

from pydantic import Field

from elman.config import Config


class EvaluationConfig(Config):
    lanes: int = Field(1, ge=1)
    """Pieces in which a stream is read at once: 1 keeps all context; more are faster."""
    batch_size: int = Field(64, ge=1)
    """Documents read at once, where each stands on its own; changes speed only."""
    choose_by: str = "loss"
    """Figure of the validation that decides which weights are best and when to stop: loss, or one of the task's own,
    like accuracy, f1, bleu, exact_match."""
    sequence_length: int = Field(256, ge=1)
    """Positions read at once; changes speed and memory only. Masked models read pieces as long as in training."""
