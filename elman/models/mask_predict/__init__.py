"""Parallel prediction: all places of a target at once, filled again where the model is least sure."""

from elman.models.mask_predict.config import MaskPredictConfig, ParallelDecoderConfig, ParallelEncoderConfig
from elman.models.mask_predict.model import MaskPredict, ParallelDecoder, Written

__all__ = [
    "MaskPredict",
    "MaskPredictConfig",
    "ParallelDecoder",
    "ParallelDecoderConfig",
    "ParallelEncoderConfig",
    "Written",
]
