"""Models: stacks of layers with an input embedding and an output head, and n-grams."""

from elman.models.base import (
    LIKELIHOOD_OF,
    MODELS,
    TASK_MODELS,
    Prediction,
    SequenceModel,
    masked_model_error,
    prediction_of,
)
from elman.models.classifier import Classifier, ClassifierConfig
from elman.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig, Transducer, TransducerConfig
from elman.models.language_model import LanguageModel
from elman.models.mask_predict import MaskPredict, MaskPredictConfig
from elman.models.masked import Masked, MaskedConfig
from elman.models.ngram import NGram
from elman.models.stack import Stack, StackConfig
from elman.models.tagger import Tagger, TaggerConfig

__all__ = [
    "LIKELIHOOD_OF",
    "MODELS",
    "TASK_MODELS",
    "Classifier",
    "ClassifierConfig",
    "EncoderDecoder",
    "EncoderDecoderConfig",
    "LanguageModel",
    "MaskPredict",
    "MaskPredictConfig",
    "Masked",
    "MaskedConfig",
    "NGram",
    "Prediction",
    "SequenceModel",
    "Stack",
    "StackConfig",
    "Tagger",
    "TaggerConfig",
    "Transducer",
    "TransducerConfig",
    "masked_model_error",
    "prediction_of",
]
