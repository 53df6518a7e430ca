"""Tokenizers of imported models: theirs, unchanged, or numbers as ids if they came without one."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
import tokenizers as hf
from pydantic import Field
from tokenizers import decoders, models, pre_tokenizers

from elman import config as settings
from elman.errors import ConfigError, DataError
from elman.tokenizers.base import TOKENIZERS, Ids, Tokenizer, deterministic
from elman.tokenizers.library_file import library_errors
from elman.tokenizers.schemes import BYTES
from elman.tokenizers.surface import Surface, Way, borders, glued, mark, ways

RAW = re.compile(r"<0x([0-9A-F]{2})>")  # a byte in vocabularies with byte fallback


class _OfImportedModel(Tokenizer):
    """Created by `elman import` only; the model decides which ids end and start a text."""

    lossless = False

    class Config(settings.Config):
        vocab_size: int = Field(0, ge=0)
        """Vocabulary size of the model, often larger than the tokenizer's; 0: the tokenizer's."""
        eos_id: int = Field(0, ge=0)
        """Id of end-of-text."""
        start_id: int | None = Field(None, ge=0)
        """Id of start-of-text; null: eos_id."""
        model_max_length: int = Field(0, ge=0)
        """Positions that the imported model has, with the start of the text; a warning says if a text needs more.
        0: no limit."""

    @classmethod
    def train(cls, config: Any, texts: Iterable[str]) -> NoReturn:
        raise ConfigError(f"tokenizer: {cls.name!r} belongs to imported models and cannot be trained; use bpe or word")

    @property
    def start_id(self) -> int:
        return self.eos_id if self.config.start_id is None else self.config.start_id

    def ordered(self) -> bool:
        return max(self.eos_id, self.start_id) < self.vocab_size


@TOKENIZERS.register("imported")
class Imported(_OfImportedModel):
    """An imported tokenizer; lossless only as far as the original. Created by `elman import` only."""

    def __init__(self, config: Any, library: hf.Tokenizer):
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True  # special tokens in a text are encoded as plain text
        self.config, self.library = config, deterministic(library)
        self.eos_id = config.eos_id
        self.vocabulary: dict[str, int] = library.get_vocab()
        size = config.vocab_size or max(self.vocabulary.values()) + 1
        self._texts = [""] * size
        for text, id in self.vocabulary.items():
            if id < size:
                self._texts[id] = text
        model = json.loads(library.to_str())["model"]
        unknown = model.get("unk_token") or model.get("unk_id")  # a token, or for unigram models an id
        self.unk_id = self.vocabulary.get(unknown) if isinstance(unknown, str) else unknown
        self.unk_id = self.unk_id if isinstance(self.unk_id, int) else None
        self.spellings, self.leading = _spellings(library, self._texts, self.vocabulary)
        decoder = json.loads(library.to_str())["decoder"] or {}
        self._sets_apart = decoder.get("type") == "WordPiece"
        if decoder.get("cleanup"):  # it removes spaces before marks of punctuation
            library = hf.Tokenizer.from_str(library.to_str())
            library.decoder = decoders.WordPiece(decoder["prefix"], cleanup=False)
        self._restored, _ = _spellings(library, self._texts, self.vocabulary)
        self.surface, self.rewrites = None if _restores_all(library) else Surface(), True

    def encode(self, text: str) -> Ids:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: list[str]) -> list[Ids]:
        return [self._within(ids) for ids in self.library_encode(texts)]

    def unknowns(self, text: str) -> list[str]:
        with library_errors():
            encoding = self.library.encode(text, add_special_tokens=False)
        spans = zip(encoding.ids, encoding.offsets, strict=True)
        return [text[start:end] for id, (start, end) in spans if id in (self.unk_id, self.eos_id)]

    def restored(self, text: str) -> str:
        unknowns = iter(self.unknowns(text))
        ids = self.encode(text).tolist()
        parts = [next(unknowns, "").encode() if id == self.unk_id else self._restored[id] for id in ids]
        return b"".join(parts).removeprefix(self.leading).decode("utf-8", "replace")

    def ways(self, text: str) -> Counter[Way]:
        """Marks of punctuation, which decoding WordPiece sets apart, may be glued in the text."""
        found = glued(self.restored(text), text) if self._sets_apart else None
        if found is None:
            return super().ways(text)
        plain, groups = found
        return ways(plain, text, self.rewrites) + borders([mark(piece) for piece in group] for group in groups)

    def _within(self, ids: Ids) -> Ids:
        self.check_length(1 + len(ids))
        if len(ids) and ids.max() >= self.vocab_size:
            token, id = self.library.id_to_token(int(ids.max())), ids.max()
            raise DataError(f"a text contains {token!r}, token {id}, but the model has only {self.vocab_size} tokens")
        if (ids == self.eos_id).any():
            if self.unk_id is None:
                raise DataError(f"a text contains the end-of-text token {self._texts[self.eos_id]!r}")
            ids = np.where(ids == self.eos_id, np.int32(self.unk_id), ids)
        return ids


def _restores_all(library: hf.Tokenizer) -> bool:
    """Whether every text can be decoded exactly, up to unknown parts, because each step keeps all bytes or characters;
    false where that is not sure."""
    content = json.loads(library.to_str())
    before, model = content["pre_tokenizer"], content["model"]
    steps = before.get("pretokenizers", [before]) if before else []
    of_bytes = {"ByteLevel"} <= {step["type"] for step in steps} <= {"ByteLevel", "Digits", "Split"}
    of_characters = not steps and not model.get("byte_fallback") and model.get("unk_token") in model["vocab"]
    return (
        content["normalizer"] is None
        and model["type"] == "BPE"
        and ((of_bytes and model["vocab"].keys() >= BYTES.keys()) or of_characters)
        and not any(step.get("add_prefix_space") or step.get("behavior") == "Removed" for step in steps)
        and not (model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"))
        and not any(token["lstrip"] or token["rstrip"] for token in content["added_tokens"])
    )


def _spellings(library: hf.Tokenizer, texts: list[str], vocabulary: dict[str, int]) -> tuple[list[bytes], bytes]:
    """The bytes of each token inside a text, and the space that is removed at the start of a text, if any."""
    content = json.loads(library.to_str())
    added = {entry["content"] for entry in content["added_tokens"]}
    if '"ByteLevel"' in json.dumps(content["decoder"]):
        letters = [text not in added and {*text} <= BYTES.keys() for text in texts]
        both = zip(texts, letters, strict=True)
        return [bytes(map(BYTES.__getitem__, text)) if bytewise else text.encode() for text, bytewise in both], b""
    known = [vocabulary[text] for text in texts if text]
    anchor = next((vocabulary[text] for text in texts if text.isalnum() and text not in added), known[0])
    before = len(library.decode([anchor], skip_special_tokens=False))
    pairs = library.decode_batch([[anchor, id] for id in known], skip_special_tokens=False)
    found = dict(zip(known, (pair[before:] for pair in pairs), strict=True))
    spaced = next((id for id in known if found[id].startswith(" ") and found[id].strip()), None)
    loses = spaced is not None and library.decode([spaced], skip_special_tokens=False) == found[spaced][1:]
    raws = enumerate(map(RAW.fullmatch, texts))
    spelled = [bytes.fromhex(raw[1]) if raw else found.get(id, "").encode() for id, raw in raws]
    return spelled, b" " if loses else b""


@TOKENIZERS.register("ids")
class IdTokenizer(_OfImportedModel):
    """Token ids as space-separated numbers, "12 7 99". Created by `elman import` only."""

    separator = b" "

    class Config(_OfImportedModel.Config):
        vocab_size: int = Field(1, ge=1)
        """Vocabulary size of the model."""

    @classmethod
    def make(cls, **given: Any) -> "IdTokenizer":
        config = cls.Config.make(given, where="tokenizer")
        library = hf.Tokenizer(models.WordLevel({str(id): id for id in range(config.vocab_size)}, unk_token="0"))
        library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return cls(config, library)

    def __init__(self, config: Any, library: hf.Tokenizer):
        super().__init__(config, library)
        self.eos_id, self.surface = config.eos_id, Surface()

    def encode(self, text: str) -> Ids:
        words = text.split()
        self.check_length(1 + len(words))
        return np.array(list(map(self._number, words)), dtype=np.int32)

    def restored(self, text: str) -> str:
        return " ".join(text.split())

    def ordered(self) -> bool:
        return super().ordered() and self._texts == [str(id) for id in range(self.config.vocab_size)]

    def _number(self, word: str) -> int:
        id = self.vocabulary.get(word)
        if id is None:
            remedy = "the model was imported without a tokenizer.json, so texts are ids: 12 7 99"
            raise DataError(f"{word[:40]!r} is not an id from 0 to {self.vocab_size - 1}", remedy=remedy)
        if id == self.eos_id:
            raise DataError(f"{word} is the end-of-text id, which is added automatically", remedy="remove it")
        return id
