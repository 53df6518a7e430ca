"""The token ids of all documents in one memory-mapped file, with the text counts that metrics need."""

import json
import os
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elman.corpus.document import Document
from elman.errors import DataError
from elman.tokenizers import EOS_ID, Tokenizer

GROUP = 2**20  # characters that are encoded together: bounds memory
GROUP_DOCUMENTS = 2**13
VERSION = 1


@dataclass
class TextCounts:
    documents: int = 0
    tokens: int = 0  # including `<eos>`
    bytes: int = 0  # in the source, including separators
    characters: int = 0
    words: int = 0  # separated by whitespace
    unknowns: int = 0  # `<unk>` tokens that are not literally in the text
    unknown_bytes: int = 0  # UTF-8 bytes of the words they replace


class TokenStore:
    """Files `NAME.tokens` (ids), `NAME.starts` (document offsets, plus the end) and `NAME.json` (written last)."""

    tokens: NDArray[np.integer[Any]]
    starts: NDArray[np.int64]

    def __init__(
        self,
        folder: Path,
        name: str,
        facts: TextCounts,
        *,
        dtype: str,
        vocab_size: int,
        fingerprint: str,
        marks: tuple[int, int] = (EOS_ID, EOS_ID),
    ):
        self.folder, self.name, self.facts, self.fingerprint = folder, name, facts, fingerprint
        self.vocab_size = vocab_size
        self.end, self.start = marks  # end and start token
        tokens, starts = folder / f"{name}.tokens", folder / f"{name}.starts"
        if _size(tokens) != facts.tokens * np.dtype(dtype).itemsize:
            raise _damaged(tokens, f"{_size(tokens)} bytes do not hold {facts.tokens} tokens of {dtype}")
        mapped = np.memmap(tokens, dtype, "r") if facts.tokens else np.empty(0, dtype)
        self.tokens = np.asarray(mapped)  # a plain view avoids memmap's indexing overhead
        try:
            with starts.open("rb") as file:
                self.starts = np.load(file, allow_pickle=False)
                if file.read(1):
                    raise ValueError("trailing bytes")
        except (OSError, ValueError, EOFError) as error:
            raise _damaged(starts, str(error)) from None
        if self.starts.dtype != np.int64 or self.starts.shape != (facts.documents + 1,):
            raise _damaged(starts, f"{self.starts.dtype} {self.starts.shape} != {facts.documents} documents")
        if self.starts[0] != 0 or self.starts[-1] != facts.tokens or (np.diff(self.starts) < 1).any():
            raise _damaged(starts, f"offsets do not increase from 0 to {facts.tokens}")

    @classmethod
    def open(cls, folder: str | Path, name: str) -> "TokenStore":
        path = Path(folder) / f"{name}.json"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError("no such token store, or its creation was interrupted", file=path) from None
        except (OSError, ValueError, RecursionError) as error:
            raise _damaged(path, str(error)) from None
        if not isinstance(content, dict) or content.pop("version", None) != VERSION:
            raise _damaged(path, f"not a token store of version {VERSION}")
        try:
            facts = TextCounts(**{field.name: int(content["facts"][field.name]) for field in fields(TextCounts)})
            dtype, vocab_size, fingerprint = content["dtype"], int(content["vocab_size"]), str(content["fingerprint"])
            end, start = map(int, content.get("marks", (EOS_ID, EOS_ID)))
            if dtype not in ("<u2", "<u4") or min(asdict(facts).values()) < 0:
                raise ValueError(f"dtype {dtype!r}, {facts}")
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(path, f"{type(error).__name__}: {error}") from None
        return cls(
            Path(folder), name, facts, dtype=dtype, vocab_size=vocab_size, fingerprint=fingerprint, marks=(end, start)
        )

    @classmethod
    def build(
        cls, documents: Iterable[Document], tokenizer: Tokenizer, folder: str | Path, name: str, fingerprint: str = ""
    ) -> "TokenStore":
        """Encodes a stream of documents. The store exists only once its last file is in place."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        dtype = "<u2" if tokenizer.vocab_size < 2**16 else "<u4"
        final = {part: folder / f"{name}.{part}" for part in ("tokens", "starts", "json")}
        partial = {part: path.with_name(f"{path.name}.{os.getpid()}.partial") for part, path in final.items()}
        facts, starts = TextCounts(), array("q", [0])
        try:
            with partial["tokens"].open("wb") as file:
                for ids, sizes in _encoded(documents, tokenizer, facts):
                    file.write(ids.astype(dtype).tobytes())
                    starts.extend(sizes)
                _sync(file)
            facts.documents = len(starts) - 1
            offsets = np.cumsum(np.frombuffer(starts, dtype=np.int64))
            facts.tokens = int(offsets[-1])
            with partial["starts"].open("wb") as file:
                np.save(file, offsets, allow_pickle=False)
                _sync(file)
            content = {"version": VERSION, "facts": asdict(facts), "dtype": dtype, "fingerprint": fingerprint}
            content |= {"vocab_size": tokenizer.vocab_size, "tokenizer": tokenizer.name}
            content |= {"marks": [tokenizer.eos_id, tokenizer.start_id]}
            with partial["json"].open("wb") as file:
                file.write(json.dumps(content, indent=1).encode("utf-8"))
                _sync(file)
            final["json"].unlink(missing_ok=True)  # from here until the last rename, the store does not exist
            for part, path in partial.items():
                path.replace(final[part])
        finally:
            for path in partial.values():
                path.unlink(missing_ok=True)
        return cls.open(folder, name)

    def document(self, index: int) -> NDArray[np.integer[Any]]:
        """The ids of one document, including `<eos>`."""
        return self.tokens[self.starts[index] : self.starts[index + 1]]


def _encoded(
    documents: Iterable[Document], tokenizer: Tokenizer, facts: TextCounts
) -> Iterator[tuple[NDArray[np.int32], list[int]]]:
    """For each group: its ids, and the sizes of the documents that end in it."""
    end = np.array([tokenizer.eos_id], dtype=np.int32)
    size, continues = 0, False
    for group in _groups(documents):
        pieces: list[NDArray[np.int32]] = []
        sizes: list[int] = []
        for document, ids in zip(group, tokenizer.encode_batch([document.text for document in group]), strict=True):
            _count(facts, document, ids, tokenizer)
            continues = getattr(document, "continues", False)
            size += len(ids)
            pieces.append(ids)
            if not continues:
                pieces.append(end)
                sizes.append(size + 1)
                size = 0
        yield np.concatenate(pieces), sizes
    if continues:
        yield end, [size + 1]


def _groups(documents: Iterable[Document]) -> Iterator[list[Document]]:
    group: list[Document] = []
    held = 0
    for document in documents:
        group.append(document)
        held += len(document.text)
        if held >= GROUP or len(group) >= GROUP_DOCUMENTS:
            yield group
            group, held = [], 0
    if group:
        yield group


def _count(facts: TextCounts, document: Document, ids: NDArray[np.int32], tokenizer: Tokenizer) -> None:
    facts.bytes += document.size
    facts.characters += len(document.text)
    facts.words += len(document.text.split())
    if tokenizer.unk_id is not None and (ids == tokenizer.unk_id).any():
        unknowns = tokenizer.unknowns(document.text)
        facts.unknowns += len(unknowns)
        facts.unknown_bytes += sum(len(text.encode("utf-8", "surrogatepass")) for text in unknowns)


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1


def _damaged(path: Path, reason: str) -> DataError:
    return DataError(f"damaged token store: {reason}", file=path, remedy="create it again")
