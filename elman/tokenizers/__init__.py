"""Tokenizers: byte, character, word, byte-level BPE, and those of imported models."""

from elman.tokenizers.base import EOS, EOS_ID, TOKENIZERS, StreamDecoder, Tokenizer, load_tokenizer, train_tokenizer
from elman.tokenizers.imported import IdTokenizer, Imported
from elman.tokenizers.schemes import BPE, Byte, Character, Word
