"""Text files: lines, blocks and files as documents, whose bytes are those of the text as read."""

import gzip
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from elman.corpus import source_reader, text
from elman.errors import DataError

ENDS = st.sampled_from(["\n", "\r\n", "\r", "\n\n", "", " ", "a", "é", "語", "\u2028", "\x0c", "\x85", "b c"])
TEXTS = st.lists(ENDS, min_size=1, max_size=40).map("".join).filter(bool)
LINE_END = re.compile("\r\n|\n|\r")
DAMAGED = st.lists(st.sampled_from([b"a", b"\r\n", b"\n", b"\r", b" ", b"\0", b"\xff", "é".encode()]), min_size=1)
UNITS = [{"document": "line", "boundary": "carry"}, {"boundary": "reset"}, {"document": "block"}, {"document": "file"}]


def editor_lines(written: str) -> list[str]:
    lines = LINE_END.split(written)
    return lines if lines[-1] else lines[:-1]


@pytest.fixture(params=[1, 3, 2**18])
def chunk(request, monkeypatch):
    """Chunks so small that every line end and character crosses a boundary."""
    monkeypatch.setattr(source_reader, "CHUNK", request.param)


@pytest.mark.usefixtures("chunk")
@given(written=TEXTS)
def test_lines_match_an_editor(read, written):
    documents, _ = read(written.encode(), document="line", boundary="carry")
    assert [document.text for document in documents] == editor_lines(written)
    assert [document.line for document in documents] == list(range(1, len(documents) + 1))
    assert sum(document.size for document in documents) == len(LINE_END.sub("\n", written).encode())


@pytest.mark.usefixtures("chunk")
@given(written=TEXTS, passage=st.integers(16, 40))
def test_chunks_of_a_file_concatenate_to_the_file(read, written, passage):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "PIECE_BYTES", passage)
        documents, corpus = read(written.encode(), tokenizer="char")
    assert corpus.unit == "file"
    assert "".join(document.text for document in documents) == LINE_END.sub("\n", written)
    assert all(document.size == len(document.text.encode()) for document in documents)
    assert [document.continues for document in documents] == [True] * (len(documents) - 1) + [False]


@given(written=TEXTS)
def test_empty_lines_are_skipped_with_their_bytes(read, written):
    full = [line for line in editor_lines(written) if line.strip()]
    if not full:
        with pytest.raises(DataError, match="no documents"):
            read(written.encode(), boundary="reset")
        return
    documents, corpus = read(written.encode(), boundary="reset")
    assert [document.text for document in documents] == full
    assert corpus.repairs.counts["empty document"] == len(editor_lines(written)) - len(full)
    assert sum(document.size for document in documents) <= sum(len(line.encode()) + 1 for line in full)


@given(written=TEXTS.filter(str.strip))
def test_blocks_are_separated_by_blank_lines(read, written):
    documents, _ = read(written.encode(), document="block")
    lines = [line if line.strip() else "" for line in editor_lines(written)]
    expected = [block.strip("\n") for block in re.split("\n\n+", "\n".join(lines))]
    assert [document.text for document in documents] == [block for block in expected if block]
    assert all(lines[document.line - 1] == document.text.split("\n")[0] for document in documents)


@pytest.mark.parametrize("unit", UNITS, ids=str)
@given(parts=DAMAGED, order_mark=st.booleans())
def test_texts_that_are_read_alike_have_the_bytes_of_one_of_them(read, unit, parts, order_mark):
    """Bits per byte would be too low if bytes counted that are dropped: carriage returns, blank lines, repairs.

    The sizes say where the newlines of that text are.
    """
    try:
        documents, _ = read(b"\xef\xbb\xbf" * order_mark + b"".join(parts), **unit)
    except DataError:
        assume(False)
    plain = "".join(one.text + "\n" * (one.size - len(one.text.encode())) for one in documents)
    assume(plain)
    again, corpus = read(plain.encode(), **unit)
    assert [(one.text, one.size) for one in again] == [(one.text, one.size) for one in documents]
    assert not corpus.repairs


def test_a_wikitext_line_is_kept_as_it_is(read):
    documents, corpus = read(b" \n = Title = \n \n text <unk> . \n")
    assert [document.text for document in documents] == [" ", " = Title = ", " ", " text <unk> . "]
    assert corpus.carry


def test_gzip_files_are_read(read):
    documents, _ = read(gzip.compress(b"a\nb\n"), "a.txt.gz")
    assert [(document.text, document.size) for document in documents] == [("a", 2), ("b", 2)]


@pytest.mark.slow
def test_a_line_of_100_megabytes_is_rejected_as_a_line_and_streams_as_a_file(read):
    data = b"ok\n" + "é".encode() * 50_000_000
    with pytest.raises(DataError, match=r"line 2: .*longer than 16777216 bytes .*max_record_bytes"):
        read(data)
    documents, _ = read(data, tokenizer="byte")
    assert max(document.size for document in documents) <= text.PIECE_BYTES + 4
    assert sum(document.size for document in documents) == len(data)
    assert all(set(document.text) <= set("ok\né") for document in documents)


def test_a_long_line_is_cut_after_a_space_where_there_is_one(read, monkeypatch):
    monkeypatch.setattr(text, "PIECE_BYTES", 32)
    documents, corpus = read(b"some words " * 20 + b"\n\xff", tokenizer="char")
    assert len(documents) > 3
    assert all(document.text.endswith((" ", "\n")) for document in documents[:-1])
    assert corpus.repairs.first["invalid UTF-8"].endswith("line 2")


@pytest.mark.parametrize("length", [13, 14, 15, 16, 17, 31, 32])
def test_crlf_is_never_split(read, monkeypatch, length):
    monkeypatch.setattr(text, "PIECE_BYTES", 16)
    documents, _ = read(b"x" * length + b"\r\nend", tokenizer="char")
    assert "".join(document.text for document in documents) == "x" * length + "\nend"


def test_a_block_beyond_the_limit_is_rejected(read):
    with pytest.raises(DataError, match=r"line 3: the block is longer"):
        read(b"a\n\n" + b"bcdef\n" * 20, document="block", max_record_bytes=64)
