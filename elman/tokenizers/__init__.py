"""Tokenizers: byte, character, word, byte-level BPE, and those of imported models."""

from elman.tokenizers.base import (
    EOS,
    EOS_ID,
    TOKENIZERS,
    UNK,
    UNK_ID,
    Tokenizer,
    load_tokenizer,
    train_tokenizer,
)
from elman.tokenizers.bpe import BPE
from elman.tokenizers.byte import Byte
from elman.tokenizers.character import Character
from elman.tokenizers.ids import IdTokenizer
from elman.tokenizers.imported import Imported
from elman.tokenizers.report import UnknownReport, report
from elman.tokenizers.stream import StreamDecoder
from elman.tokenizers.word import Word

__all__ = [
    "BPE",
    "EOS",
    "EOS_ID",
    "TOKENIZERS",
    "UNK",
    "UNK_ID",
    "Byte",
    "Character",
    "IdTokenizer",
    "Imported",
    "StreamDecoder",
    "Tokenizer",
    "UnknownReport",
    "Word",
    "load_tokenizer",
    "report",
    "train_tokenizer",
]
