"""Shared by corpus tests: reads bytes as documents."""

from collections.abc import Callable
from pathlib import Path

import pytest

from elman.corpus import Corpus, DataConfig, Document, open_corpus

Read = Callable[..., tuple[list[Document], Corpus]]


@pytest.fixture(scope="session")
def read(tmp_path_factory: pytest.TempPathFactory) -> Read:
    """Write bytes to a file and read it back as the whole training split."""
    folder = tmp_path_factory.mktemp("read")

    def read(data: bytes, name: str = "a.txt", tokenizer: str = "word", **settings) -> tuple[list[Document], Corpus]:
        path = Path(folder / name)
        path.write_bytes(data)
        config = DataConfig.make({"train": str(path), "valid_fraction": 0, **settings})
        corpus = open_corpus(config, tokenizer)
        return list(corpus.documents("train")), corpus

    return read
