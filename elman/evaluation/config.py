"""Evaluation settings."""

from pydantic import Field

from elman.config import Config


class EvaluationConfig(Config):
    lanes: int = Field(1, ge=1)
    """Number of parallel streams that the text is split into: 1 keeps the whole context; more are faster."""
    batch_size: int = Field(64, ge=1)
    """Documents per batch, if documents are independent; affects speed only."""
    choose_by: str = "loss"
    """Validation metric for model selection and early stopping: loss, or a metric of the task, such as accuracy, f1,
    bleu or exact_match."""
    calibrate: bool = False
    """Classification: divide the logits of the best checkpoint by the temperature that fits the validation split (Guo
    et al., 2017), so that probabilities mean what they say; answers stay the same."""
    sequence_length: int = Field(256, ge=1)
    """Chunk length in tokens; affects speed and memory only. Masked models use the length of training."""
