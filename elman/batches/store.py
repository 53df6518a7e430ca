"""The token ids of all documents in one memory-mapped file, with the text counts that metrics need."""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from elman import files
from elman.config import Count, first_problem
from elman.corpus.document import Document
from elman.errors import DataError, first_line
from elman.limits import limits
from elman.tokenizers import EOS_ID, Tokenizer
from elman.untrusted import read_bytes

GROUP = 2**20  # characters that are encoded together: bounds memory
GROUP_DOCUMENTS = 2**13


AGAIN = "elman train --resume encodes the data again"
Hashes = dict[str, tuple[int, str]]


@dataclass
class TextCounts:
    documents: Count = 0
    tokens: Count = 0  # including `<eos>`
    bytes: Count = 0  # of the text as read, including separators
    characters: Count = 0
    words: Count = 0  # separated by whitespace
    unknowns: Count = 0  # `<unk>` tokens that are not literally in the text
    unknown_bytes: Count = 0  # UTF-8 bytes of the words they replace
    surface: float = 0.0  # nats of capitals, spacing and Unicode forms that the tokens lack


class _Metadata(BaseModel):
    version: Literal[2] = 2
    facts: TextCounts
    dtype: Literal["<u2", "<u4"]
    fingerprint: str
    vocab_size: int
    tokenizer: str = ""
    marks: tuple[int, int] = (EOS_ID, EOS_ID)  # end and start token
    files: Hashes = {}  # empty in stores of earlier versions


class TokenStore:
    """Files `NAME.tokens` (ids), `NAME.starts` (document offsets, plus the end) and `NAME.json` (written last)."""

    tokens: NDArray[np.integer[Any]]
    starts: NDArray[np.int64]

    def __init__(self, folder: Path, name: str, metadata: _Metadata):
        self.folder, self.name, self.facts = folder, name, metadata.facts
        self.fingerprint, self.vocab_size, dtype = metadata.fingerprint, metadata.vocab_size, metadata.dtype
        self.end, self.start = metadata.marks
        tokens, starts = folder / f"{name}.tokens", folder / f"{name}.starts"
        size = tokens.stat().st_size if tokens.is_file() else -1
        if size != self.facts.tokens * np.dtype(dtype).itemsize:
            raise _damaged(tokens, f"{size} bytes do not hold {self.facts.tokens} tokens of {dtype}")
        mapped = np.memmap(tokens, dtype, "r") if self.facts.tokens else np.empty(0, dtype)
        self.tokens = np.asarray(mapped)  # a plain view avoids memmap's indexing overhead
        try:
            with starts.open("rb") as file:
                self.starts = np.load(file, allow_pickle=False)
                if file.read(1):
                    raise ValueError("trailing bytes")
        except Exception as error:  # numpy parses headers as Python literals, and raises what the parser does
            raise _damaged(starts, first_line(error)) from None
        if self.starts.dtype != np.int64 or self.starts.shape != (self.facts.documents + 1,):
            raise _damaged(starts, f"{self.starts.dtype} {self.starts.shape} != {self.facts.documents} documents")
        if self.starts[0] != 0 or self.starts[-1] != self.facts.tokens or (np.diff(self.starts) < 1).any():
            raise _damaged(starts, f"offsets do not increase from 0 to {self.facts.tokens}")

    @classmethod
    def open(cls, folder: str | Path, name: str) -> "TokenStore":
        path = Path(folder) / f"{name}.json"
        if not path.exists():
            raise DataError("no such token store, or its creation was interrupted", file=path)
        content = read_bytes(path, limits().json_bytes, DataError, follow_links=True)
        try:
            metadata = _Metadata.model_validate_json(content)
        except ValidationError as error:
            raise _damaged(path, first_problem(error)) from None
        check_hashes(path.parent, metadata.files)
        return cls(path.parent, name, metadata)

    @classmethod
    def build(
        cls, documents: Iterable[Document], tokenizer: Tokenizer, folder: str | Path, name: str, fingerprint: str = ""
    ) -> "TokenStore":
        """Encodes a stream of documents. The store exists only once its last file is in place."""
        folder, path = Path(folder), Path(folder) / f"{name}.json"
        files.make_folder(folder)
        dtype: Literal["<u2", "<u4"] = "<u2" if tokenizer.vocab_size < 2**16 else "<u4"
        facts, starts = TextCounts(), array("q", [0])
        with files.replacing(folder / f"{name}.tokens") as temporary:
            with files.new_file(temporary) as file:
                for ids, sizes in _encoded(documents, tokenizer, facts):
                    file.write(ids.astype(dtype).tobytes())
                    starts.extend(sizes)
            if path.exists():
                files.remove(path)  # from here until it is written, the store does not exist
        facts.documents = len(starts) - 1
        offsets = np.cumsum(np.frombuffer(starts, dtype=np.int64))
        facts.tokens = int(offsets[-1])
        files.atomic_write(folder / f"{name}.starts", files.npy_bytes(offsets))
        metadata = _Metadata(
            facts=facts,
            dtype=dtype,
            fingerprint=fingerprint,
            vocab_size=tokenizer.vocab_size,
            tokenizer=tokenizer.name,
            marks=(tokenizer.eos_id, tokenizer.start_id),
            files=hashes(folder, (f"{name}.tokens", f"{name}.starts")),
        )
        files.atomic_write(path, metadata.model_dump_json(indent=1).encode())
        return cls(folder, name, metadata)

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
    facts.surface += tokenizer.surface_nats(document.text)
    if tokenizer.unk_id is not None and (ids == tokenizer.unk_id).any():
        unknowns = tokenizer.unknowns(document.text)
        facts.unknowns += len(unknowns)
        facts.unknown_bytes += sum(len(text.encode("utf-8", "surrogatepass")) for text in unknowns)


def hashes(folder: Path, names: Iterable[str]) -> Hashes:
    """Size and SHA-256 of the files of a store, for the JSON file that is written last."""
    return {name: ((folder / name).stat().st_size, files.sha256_of(folder / name)) for name in names}


def check_hashes(folder: Path, expected: Hashes) -> None:
    """DataError if a file of a store is not as it was written."""
    for name, (size, digest) in expected.items():
        path = folder / Path(name).name
        if not path.is_file() or path.stat().st_size != size or files.sha256_of(path) != digest:
            raise DataError("damaged: changed since it was written", file=folder / name, remedy=AGAIN)


def _damaged(path: Path, reason: str) -> DataError:
    return DataError(f"damaged token store: {reason}", file=path, remedy=AGAIN)
