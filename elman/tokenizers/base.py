"""The interface of tokenizers, stored in the file format of the `tokenizers` library, with incremental decoding."""

import codecs
import json
import os
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import tokenizers as hf
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, TypeAdapter

from elman.config import Config
from elman.errors import ConfigError, DataError, ElmanError, brief
from elman.files import atomic_write
from elman.registry import Registry
from elman.tokenizers.library_file import library_errors, make_library, read_content
from elman.tokenizers.surface import Surface, Way, ways

EOS, UNK = "<eos>", "<unk>"
EOS_ID, UNK_ID = 0, 1
SETTINGS = "elman"  # our key in the file's "model" section, where the library ignores unknown keys

Ids = NDArray[np.int32]
Counts = dict[str, dict[str, Annotated[int, Field(ge=0, lt=2**63)]]]


class Tokenizer(ABC):
    """Created by `train_tokenizer` or `load_tokenizer`. In elman's own schemes `<eos>` is 0; no text is encoded to
    it."""

    name: ClassVar[str]
    lossless: ClassVar[bool]
    """Whether decoding restores every text exactly."""
    eos_id: int = EOS_ID
    unk_id: int | None = None
    separator: ClassVar[bytes] = b""
    """Separator of tokens in decoded text."""
    leading: bytes = b""
    """A byte that is removed at the start of decoded text."""
    surface: Surface | None = None
    """Probabilities of what encoding drops, fitted on training text; None if that is nothing but unknown parts."""
    rewrites: bool = False
    """Whether encoding drops letters' case or Unicode form, and not only spacing."""

    class Config(Config):
        pass

    def __init__(self, config: Any, library: hf.Tokenizer):
        self.config, self.library = config, deterministic(library)
        self.vocabulary: dict[str, int] = library.get_vocab()
        self._texts = sorted(self.vocabulary, key=self.vocabulary.__getitem__)
        self.spellings = [self.spell(text) for text in self._texts]

    @cached_property
    def most_tokens(self) -> int:
        """Tokens of a text that the model has positions for; 0: no limit."""
        return getattr(self.config, "model_max_length", 0)

    @classmethod
    @abstractmethod
    def train(cls, config: Any, texts: Iterable[str]) -> Self:
        """Learns the vocabulary from a stream of texts."""

    @abstractmethod
    def encode(self, text: str) -> Ids:
        """The ids of a text, without `<eos>`."""

    def encode_batch(self, texts: list[str]) -> list[Ids]:
        return [self.encode(text) for text in texts]

    def decode(self, ids: ArrayLike) -> str:
        """The text of any ids; invalid UTF-8 becomes U+FFFD, `<eos>` and `<unk>` are literal."""
        numbers = np.asarray(ids, dtype=np.int64).tolist()
        assert min(numbers, default=0) >= 0, "ids are not negative"
        text = self.separator.join([self.spellings[number] for number in numbers])
        return text.removeprefix(self.leading).decode("utf-8", "replace")

    def library_encode(self, texts: list[str]) -> list[Ids]:
        """The ids as the library finds them."""
        for text in texts:
            checked(text)
        with library_errors():
            encodings = self.library.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]

    def unknowns(self, text: str) -> list[str]:
        """The parts of a text that are encoded to `<unk>`, except a literal "<unk>"."""
        return []

    def restored(self, text: str) -> str:
        """What the tokens of a text stand for, with its unknown parts."""
        return text

    def ways(self, text: str) -> Counter[Way]:
        """How a text is written, given its tokens."""
        return ways(self.restored(text), text, self.rewrites)

    def fit_surface(self, texts: Iterable[str]) -> None:
        """Learns from training texts how probable capitals, gaps and other forms are that encoding drops."""
        if self.surface:
            self.surface.fit(map(self.ways, texts))

    def surface_nats(self, text: str) -> float:
        """-log p of a text given its tokens and unknown parts: 0 if encoding drops nothing."""
        return self.surface.nats(self.ways(text)) if self.surface else 0.0

    def check_length(self, tokens: int) -> None:
        """Warns if a text, with its start token, is longer than an imported model has positions."""
        if 0 < self.most_tokens < tokens:
            reason = f"a text is longer than the {self.most_tokens:,} positions of the imported model"
            warnings.warn(f"{reason}: it sees so many at most, unlike in transformers", stacklevel=2)

    def spell(self, token: str) -> bytes:
        """The bytes of a token."""
        return token.encode("utf-8")

    @property
    def vocab_size(self) -> int:
        return len(self._texts)

    @property
    def start_id(self) -> int:
        """The input before the first token of a text."""
        return self.eos_id

    def token(self, id: int) -> str:
        """The token as in the vocabulary."""
        return self._texts[id]

    def id(self, token: str) -> int | None:
        return self.vocabulary.get(token)

    def ordered(self) -> bool:
        """Whether ids count up from `<eos>`, as in every saved file."""
        first = [EOS] if self.unk_id is None else [EOS, UNK]
        ids = [self.id(token) for token in first] + sorted(self.vocabulary.values())[len(first) :]
        return ids == list(range(self.vocab_size))

    def save(self, path: str | Path) -> None:
        content = json.loads(self.library.to_str())
        content["model"][SETTINGS] = {"type": self.name, **self.config.plain()}
        if self.surface:
            content["model"][SETTINGS]["surface"] = self.surface.counts
        atomic_write(Path(path), json.dumps(content, ensure_ascii=False, indent=1).encode())


def deterministic(library: hf.Tokenizer) -> hf.Tokenizer:
    """Turns off BPE dropout, which splits a text differently each time: it is for training."""
    if getattr(library.model, "dropout", None) is not None:
        library.model.dropout = None
    return library


TOKENIZERS: Registry[Tokenizer] = Registry("tokenizer")


def train_tokenizer(settings: Mapping[str, Any] | str, texts: Iterable[str]) -> Tokenizer:
    """`"word"` or `{"type": "word", "vocab_size": 10000}`, and training texts."""
    scheme, config = _scheme_and_config({"type": settings} if isinstance(settings, str) else settings)
    return scheme.train(config, texts)


def load_tokenizer(path: str | Path) -> Tokenizer:
    if not os.path.exists(path):
        raise DataError("no such tokenizer", file=path)
    content = read_content(path)
    settings = content["model"].get(SETTINGS)
    if settings is None:
        remedy = "train one on your texts, or `elman import` its model"
        raise DataError("not an elman tokenizer", file=path, remedy=remedy)
    try:
        counts = settings.pop("surface", {})
        scheme, config = _scheme_and_config(settings, where=str(path))
        tokenizer = scheme(config, make_library(content, path))
        if tokenizer.surface:
            tokenizer.surface = Surface(TypeAdapter(Counts).validate_python(counts))
    except ElmanError:
        raise
    except Exception as error:  # of what the file says about our scheme
        raise DataError(f"damaged tokenizer: {error}", file=path) from None
    if not tokenizer.ordered():
        raise DataError(f"damaged tokenizer: its ids do not count up from {EOS} = 0", file=path)
    return tokenizer


def _scheme_and_config(settings: Mapping[str, Any], where: str = "tokenizer") -> tuple[type[Tokenizer], Any]:
    if not isinstance(settings, Mapping) or not isinstance(settings.get("type"), str):
        raise ConfigError(f"{where}: needs a type: {', '.join(TOKENIZERS)}, but got {brief(settings)}")
    scheme = TOKENIZERS[settings["type"]]
    return scheme, scheme.Config.make({key: value for key, value in settings.items() if key != "type"}, where)


def checked(text: str) -> bytes:
    """The UTF-8 of a text, or an error for unpaired surrogates."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = text[error.start]
        reason = f"character {error.start} of a text is the unpaired surrogate {found!r}"
        raise DataError(reason, remedy="this is not valid Unicode; remove it or decode its source as UTF-8") from None


class StreamDecoder:
    """The concatenated outputs of `push` and `flush` equal `decode` of all ids."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._before, self._first = b"", True
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id: int) -> str:
        """The newly completed text; never an incomplete character."""
        assert id >= 0, "an id is never negative"
        spelling = self._before + self._tokenizer.spellings[id]
        self._before = self._tokenizer.separator
        if spelling and self._first:
            spelling, self._first = spelling.removeprefix(self._tokenizer.leading), False
        return self._bytes.decode(spelling)

    def flush(self) -> str:
        """The rest of the text; the next push starts a new text."""
        rest = self._bytes.decode(b"", final=True)
        self._before, self._first = b"", True
        return rest
