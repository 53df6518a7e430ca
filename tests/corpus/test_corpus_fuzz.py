"""Fuzzing: for any bytes, a reader yields documents or raises DataError."""

import gzip
import io
import random

import pytest

from elman.errors import DataError

SEEDS = {
    "a.txt": "Ein Satz.\r\n\r\nnoch é einer\u2028mit 語\rund\nEnde".encode() * 3,
    "a.txt.gz": gzip.compress(b"one line\nand another\n\nmore " * 9, mtime=0),
    "a.jsonl": b'{"text": "a \\ud83d\\ude00 b", "n": [1, {"x": null}]}\n{"text": "c", "n": 1e5}\n' * 4,
    "a.csv": b'id,text\n1,"a, ""b""\nc"\n2,d\n3,"e"\n' * 3,
    "a.tsv": b"id\ttext\n1\ta b\n2\tc\n" * 3,
    "a.parquet": b"",  # made when it is needed
}
SPICE = [
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n",
    b'"',
    b"\xe2\x82",
    b"{",
    b"[" * 3000,
    b"\\ud800",
    b"\t",
    b",",
]


def mutate(seed: bytes, source: random.Random) -> bytes:
    data = bytearray(seed)
    for _ in range(source.choice([1, 1, 2, 6])):
        at = source.randrange(len(data) + 1)
        choice = source.randrange(5)
        if choice == 0:
            del data[at : at + source.randint(1, 20)]
        elif choice == 1:
            data[at:at] = source.choice(SPICE)
        elif choice == 2:
            data[at:at] = source.randbytes(source.randint(1, 8))
        elif choice == 3:
            data[at : at + 1] = source.randbytes(1)
        else:
            data[at:at] = data[: source.randint(1, 40)]
    return bytes(data)


def parquet() -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    file = io.BytesIO()
    write_table(pyarrow.table({"text": ["a", "é", None] * 9, "n": list(range(27))}), file)
    return file.getvalue()


def damaged(name: str, source: random.Random) -> bytes:
    if name == "a.txt.gz" and source.random() < 0.5:
        return gzip.compress(mutate(SEEDS["a.txt"], source))
    return mutate(SEEDS[name] or parquet(), source)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "document"),
    [(name, unit) for name in ("a.txt", "a.txt.gz") for unit in ("line", "block", "file")]
    + [(name, "auto") for name in SEEDS if not name.startswith("a.txt")],
)
def test_mutated_bytes_give_documents_or_a_data_error(read, name, document):
    source = random.Random(f"{name} {document}")
    given, refused = 0, []
    for _ in range(500):
        settings = {
            "document": document,
            "boundary": source.choice(["carry", "reset"]),
            "invalid": source.choice(["repair", "error"]),
            "max_record_bytes": source.choice([64, 2**24]),
            "valid_fraction": source.choice([0, 0.3]),
        }
        try:
            documents, _ = read(damaged(name, source), name, **settings)
        except DataError as error:
            refused.append(str(error))
        else:
            given += 1
            assert all(found.text.encode("utf-8") or found.size for found in documents)
    assert given > 10
    assert len(refused) > 10
    assert all(name in message for message in refused)
