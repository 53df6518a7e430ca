"""Mask-predict: parallel decoding of all target positions with iterative refinement."""

from elman.models.mask_predict.config import MaskPredictConfig, ParallelDecoderConfig, ParallelEncoderConfig
from elman.models.mask_predict.model import DecodedTargets, MaskPredict, ParallelDecoder

__all__ = [
    "DecodedTargets",
    "MaskPredict",
    "MaskPredictConfig",
    "ParallelDecoder",
    "ParallelDecoderConfig",
    "ParallelEncoderConfig",
]
