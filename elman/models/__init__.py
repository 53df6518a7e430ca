"""Models: stacks of layers with something to predict."""

from elman.models.base import (
    CLASSIFIERS,
    KINDS,
    MODELS,
    TAGGERS,
    TRANSLATORS,
    Prediction,
    SequenceModel,
    cannot_step,
    is_masked,
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
from elman.models.text_reader import TextReader, TextReaderConfig

__all__ = [
    "CLASSIFIERS",
    "KINDS",
    "MODELS",
    "TAGGERS",
    "TRANSLATORS",
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
    "TextReader",
    "TextReaderConfig",
    "Transducer",
    "TransducerConfig",
    "cannot_step",
    "is_masked",
    "prediction_of",
]
