"""Models: stacks of layers with an input embedding and an output head, and n-grams."""

from elman.models.base import (
    CLASSIFIERS,
    LIKELIHOOD_OF,
    MODELS,
    TAGGERS,
    TRANSLATORS,
    frame_of,
    is_masked,
    masked_model_error,
    prediction_of,
)
from elman.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig, Transducer, TransducerConfig
from elman.models.encoder_decoder.config import MaskPredictConfig
from elman.models.language_model import LanguageModel
from elman.models.mask_predict import MaskPredict
from elman.models.masked import Masked, MaskedConfig
from elman.models.ngram import NGram
from elman.models.stack import Stack, StackConfig
from elman.models.tagger import Tagger, TaggerConfig
from elman.models.text_reader import Classifier, ClassifierConfig, TextReader, TextReaderConfig
