"""What a tokenizer is: a map from text to ids and back, kept in the file format of the `tokenizers` library."""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import tokenizers as hf
from numpy.typing import ArrayLike, NDArray

from elman.config import Config
from elman.errors import ConfigError, DataError
from elman.registry import Registry

EOS, UNK = "<eos>", "<unk>"
EOS_ID, UNK_ID = 0, 1
FACTS = "elman"  # our key in the file's "model" section, where the library overlooks what it does not know

Ids = NDArray[np.int32]


class Tokenizer(ABC):
    """Built by `train_tokenizer` or `load_tokenizer`. Its own schemes have `<eos>` at 0; no text is encoded to it."""

    name: ClassVar[str]
    lossless: ClassVar[bool]
    """Whether decoding gives back every text exactly."""
    eos_id: int = EOS_ID
    unk_id: int | None = None
    separator: ClassVar[bytes] = b""
    """What stands between the pieces of a decoded text."""
    leading: bytes = b""
    """One byte that a decoded text loses where it would begin with it."""

    class Config(Config):
        pass

    def __init__(self, config: Any, library: hf.Tokenizer):
        self.config, self.library = config, library
        self.vocabulary: dict[str, int] = library.get_vocab()
        self._texts = sorted(self.vocabulary, key=self.vocabulary.__getitem__)
        self.spellings = [self.spell(text) for text in self._texts]

    @classmethod
    @abstractmethod
    def train(cls, config: Any, texts: Iterable[str]) -> Self:
        """Learn the vocabulary from a stream of texts."""

    @abstractmethod
    def encode(self, text: str) -> Ids:
        """The ids of a text, without `<eos>`."""

    def encode_batch(self, texts: list[str]) -> list[Ids]:
        return [self.encode(text) for text in texts]

    def decode(self, ids: ArrayLike) -> str:
        """The text of any ids; bytes that are no UTF-8 become U+FFFD, `<eos>` and `<unk>` stand as written."""
        numbers = np.asarray(ids, dtype=np.int64).tolist()
        assert min(numbers, default=0) >= 0, "an id is never negative"
        whole = self.separator.join([self.spellings[number] for number in numbers])
        return whole.removeprefix(self.leading).decode("utf-8", "replace")

    def unknowns(self, text: str) -> list[str]:
        """The parts of a text that are encoded to `<unk>` though they do not read "<unk>"."""
        return []

    def spell(self, token: str) -> bytes:
        """The bytes that a token of the vocabulary stands for."""
        return token.encode("utf-8")

    @property
    def vocab_size(self) -> int:
        return len(self._texts)

    @property
    def start_id(self) -> int:
        """What a model reads before the first token of a text."""
        return self.eos_id

    def token(self, id: int) -> str:
        """The token as the vocabulary writes it."""
        return self._texts[id]

    def id(self, token: str) -> int | None:
        return self.vocabulary.get(token)

    def ordered(self) -> bool:
        """Whether ids count up from `<eos>`, as in every file that was saved here."""
        first = [EOS] if self.unk_id is None else [EOS, UNK]
        ids = [self.id(token) for token in first] + sorted(self.vocabulary.values())[len(first) :]
        return ids == list(range(self.vocab_size))

    def save(self, path: str | Path) -> None:
        content = json.loads(self.library.to_str())
        content["model"][FACTS] = {"type": self.name, **self.config.plain()}
        Path(path).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")


TOKENIZERS: Registry[Tokenizer] = Registry("tokenizer")


def train_tokenizer(settings: Mapping[str, Any] | str, texts: Iterable[str]) -> Tokenizer:
    """`"word"` or `{"type": "word", "vocab_size": 10000}`, and the texts to learn from."""
    scheme, config = _choose({"type": settings} if isinstance(settings, str) else settings)
    return scheme.train(config, texts)


def load_tokenizer(path: str | Path) -> Tokenizer:
    try:
        text = Path(path).read_text(encoding="utf-8")
        facts = json.loads(text)["model"].get(FACTS)
    except FileNotFoundError:
        raise DataError("no such tokenizer", file=path) from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"cannot be read as a tokenizer: {error}", file=path) from None
    if facts is None:
        raise DataError(
            "not a tokenizer of elman", file=path, remedy="train one from your texts, or `elman import` its model"
        )
    try:
        scheme, config = _choose(facts, where=str(path))
        tokenizer = scheme(config, hf.Tokenizer.from_str(text))
    except ConfigError:
        raise
    except Exception as error:  # the library raises nothing more precise
        raise DataError(f"damaged tokenizer: {error}", file=path) from None
    if not tokenizer.ordered():
        raise DataError(f"damaged tokenizer: its ids do not count up from {EOS} = 0", file=path)
    return tokenizer


def _choose(settings: Mapping[str, Any], where: str = "tokenizer") -> tuple[type[Tokenizer], Any]:
    if not isinstance(settings, Mapping) or not isinstance(settings.get("type"), str):
        raise ConfigError(f"{where}: needs a type, one of {', '.join(TOKENIZERS)}, but got {settings!r}")
    scheme = TOKENIZERS[settings["type"]]
    return scheme, scheme.Config.make({key: value for key, value in settings.items() if key != "type"}, where)


def by_frequency(counts: Counter[str], min_frequency: int, size: int = 0) -> dict[str, int]:
    """Ids after `<eos>` and `<unk>`, most frequent first and ties by text; a `size` of 0 keeps all."""
    kept = [item for item, count in counts.items() if count >= min_frequency and item not in (EOS, UNK)]
    if not kept:
        raise DataError(f"nothing to learn a vocabulary from: no item occurs {max(min_frequency, 1)} times or more")
    kept.sort(key=lambda item: (-counts[item], item))
    return {item: id for id, item in enumerate([EOS, UNK, *kept][: size or None])}


def checked(text: str) -> bytes:
    """The UTF-8 of a text, or an error that tells what is wrong with it."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = text[error.start]
        raise DataError(
            f"character {error.start} of a text is {found!r}, half of a surrogate pair",
            remedy="such text is not Unicode; remove it or decode its source as UTF-8",
        ) from None
