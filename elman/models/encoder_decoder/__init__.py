"""Encoder-decoder models: any sequence to any sequence."""

from elman.models.encoder_decoder.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig
from elman.models.encoder_decoder.decoder import Decoder, DecoderState
from elman.models.encoder_decoder.model import Encoder, EncoderDecoder, share_embeddings
from elman.models.encoder_decoder.transducer import Transducer, TransducerConfig
