"""Records: JSON lines, tables, parquet files and hub data sets, and their errors."""

import base64
import csv
import io
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import run_forked

from elman.corpus import DataConfig, LabelledCorpus, PairCorpus, TaggedCorpus, open_corpus
from elman.errors import ConfigError, DataError
from elman.pipeline.tasks.regress.task import NumberCorpus

pyarrow = pytest.importorskip("pyarrow")
VALUES = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=9), max_size=9)


def as_jsonl(values: list[str]) -> bytes:
    return "".join(json.dumps({"id": 1, "text": value}) + "\n" for value in values).encode()


def as_csv(values: list[str]) -> bytes:
    file = io.StringIO(newline="")
    csv.writer(file).writerows([["id", "text"], *(["1", value] for value in values)])
    return file.getvalue().encode()


def as_parquet(values: list[str], kind=None) -> bytes:
    from pyarrow.parquet import write_table

    file = io.BytesIO()
    table = {"id": pyarrow.array(range(len(values))), "text": pyarrow.array(values, kind or pyarrow.string())}
    write_table(pyarrow.table(table), file)
    return file.getvalue()


@pytest.mark.parametrize(("name", "write"), [("a.jsonl", as_jsonl), ("a.csv", as_csv), ("a.parquet", as_parquet)])
@given(values=VALUES.filter(lambda values: any(map(str.strip, values))))
def test_texts_round_trip_in_every_format(read, name, write, values):
    documents, corpus = read(write(values), name)
    full = [value for value in values if value.strip()]
    assert [document.text for document in documents] == full
    assert [document.size for document in documents] == [len(value.encode()) + 1 for value in full]
    assert corpus.repairs.counts["empty document"] == len(values) - len(full)
    assert (corpus.unit, corpus.carry) == ("record", False)


def test_a_table_without_header_has_numbered_columns(read):
    documents, _ = read(b'3\t"odd" quote "\n1\tb\n', "a.tsv", column=2)
    assert [(document.text, document.line) for document in documents] == [('"odd" quote "', 1), ("b", 2)]


@pytest.mark.parametrize(("mark", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_other_separators_of_a_csv_file_are_found_and_told(read, mark, name):
    """Catches cells that are cut at commas, and a table of one column whose texts have semicolons cut in two."""
    data = f'id{mark}text\r\n1{mark}"a, b{mark}""c\r\nd"""\r\n'.encode()
    documents, corpus = read(data, "a.csv")
    assert [document.text for document in documents] == [f'a, b{mark}"c\nd"']
    assert corpus.repairs.counts[f"table separated by {name}, not commas"] == 1
    documents, corpus = read(b'"good; but long"\nshort\n', "b.csv", column=1)
    assert [document.text for document in documents] == ["good; but long", "short"]
    assert not corpus.repairs.counts


def test_the_record_limit_is_for_each_record_not_for_all(read):
    documents, _ = read(b"text\n" + b"some words\n" * 20, "a.csv", max_record_bytes=64)
    assert len(documents) == 20


def test_a_quoted_field_may_span_lines_and_exceed_what_the_csv_module_allows(read):
    long = "x" * 200_000
    before = csv.field_size_limit(1234)
    documents, _ = read(f'text,id\n"a\r\n""b""",1\n{long},2\n'.encode(), "a.csv")
    assert [(document.text, document.line) for document in documents] == [('a\n"b"', 2), (long, 4)]
    assert csv.field_size_limit(before) == 1234


def test_lone_surrogates_and_nul_in_json_are_repaired(read):
    documents, corpus = read(rb'{"text": "a\ud800b\u0000c"}', "a.jsonl")
    assert documents[0].text == "a\ufffdbc"
    assert set(corpus.repairs.counts) == {"unpaired surrogate", "NUL byte"}


def test_dictionary_columns_and_nulls_of_parquet_are_read(read):
    kind = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    documents, corpus = read(as_parquet(["a", None, "b", "a"], kind), "a.parquet")
    assert [(document.text, document.line) for document in documents] == [("a", 1), ("b", 3), ("a", 4)]
    assert corpus.repairs.counts["empty document"] == 1


DEEP = b'{"text": ' + b"[" * 5000 + b"]" * 5000 + b"}"
WRONG = {
    "missing column": (
        "a.jsonl",
        b'{"text": "a"}\n{"texts": "b", "id": 1}',
        r"line 2, column 'text': no such column \(",
    ),
    "columns listed": ("a.jsonl", b'{"id": 1}', r"columns: 'id'"),
    "wrong type": ("a.jsonl", b'{"text": 5}', r"line 1, column 'text': is int '5', not text"),
    "deep": ("a.jsonl", DEEP, r"line 1"),
    "not an object": ("a.jsonl", b'{"text": "a"}\n[1]', r"line 2: a JSON list, not an object \(give one object"),
    "not JSON": ("a.jsonl", b'{"text": "a"', r"line 1, column 13: not valid JSON"),
    "huge number": ("a.jsonl", b"9" * 5000, r"line 1: unreadable JSON"),
    "csv column": ("a.csv", b"id,texd\n1,a\n", r"did you mean 'texd'\?\); columns: 'id', 'texd'"),
    "column twice": ("a.csv", b"text,text\na,b\n", r"occurs more than once"),
    "open quote": ("a.csv", b'text\na\n"b\nc\n', r"line 3: not a valid table: unexpected end of data"),
    "ragged": ("a.csv", b"id,text\n1,a\n2\n", r"line 3: 1 fields, but the first row has 2"),
    "only a header": ("a.csv", b"id,text\n", r"no documents for train"),
    "parquet": ("a.parquet", b"PAR1 not really", r"cannot be read as parquet"),
    "parquet type": (
        "a.parquet",
        lambda: as_parquet([1], pyarrow.int64()),
        r"line 1, column 'text': is int '1', not text",
    ),
    "parquet column": ("a.parquet", lambda: as_parquet(["a"]).replace(b"text", b"texd"), r"a.parquet"),
}


@pytest.mark.parametrize("case", WRONG)
def test_damaged_records_are_errors_with_location_and_cause(read, case):
    name, data, message = WRONG[case]
    with pytest.raises(DataError, match=message):
        read(data() if callable(data) else data, name)


def test_a_column_number_beyond_the_table_is_an_error(read):
    with pytest.raises(DataError, match="the table has 2 columns"):
        read(b"a\tb\n", "a.tsv", column=3)


def test_a_quote_never_closed_stops_at_the_record_limit(read):
    with pytest.raises(DataError, match=r"line 2: the record is longer than 1000 bytes \(is a quote never closed\?\)"):
        read(b'text\n"a\n' + b"b\n" * 10_000, "a.csv", max_record_bytes=1000)


def test_hub_data_set_can_be_a_local_folder(tmp_path):
    pytest.importorskip("datasets")
    for split, texts in {"train": ["a", "b", "c"], "validation": ["d"]}.items():
        (tmp_path / f"{split}.jsonl").write_bytes(as_jsonl(texts))
    config = DataConfig(train=f"hub:{tmp_path}", valid=f"hub:{tmp_path}", test=f"hub:{tmp_path}#train")
    corpus = open_corpus(config)
    found = {split: [document.text for document in corpus.documents(split)] for split in corpus.splits()}
    assert found == {"train": ["a", "b", "c"], "valid": ["d"], "test": ["a", "b", "c"]}
    before = corpus.fingerprint("train")
    (tmp_path / "train.jsonl").write_bytes(as_jsonl(["a"]))
    assert corpus.fingerprint("train") != before
    with pytest.raises(DataError, match="no such column"):
        list(open_corpus(DataConfig(train=f"hub:{tmp_path}", column="words")).documents("train"))
    with pytest.raises(DataError, match=r"cannot be loaded: .*nowhere"):
        list(open_corpus(DataConfig(train=f"hub:{tmp_path}#nowhere")).documents("train"))


def test_a_parquet_file_that_unpacks_to_too_much_is_rejected_before_its_values_are_read(read, monkeypatch):
    """Catches: 29 kB that took 3 GB."""
    from pyarrow.parquet import ParquetFile

    monkeypatch.setenv("ELMAN_LIMITS", "unpacked_bytes=1e5 unpacked_ratio=2")
    monkeypatch.setattr(ParquetFile, "iter_batches", None)
    with pytest.raises(DataError, match=r"a\.parquet, line 1: the record is longer than 100 bytes"):
        read(as_parquet(["x" * 200]), "a.parquet", max_record_bytes=100)
    with pytest.raises(DataError, match="unpacks to more than 2 times its size"):
        read(as_parquet([f"{row}{'x' * 10**4}" for row in range(100)]), "a.parquet")


def test_a_value_that_many_rows_of_a_parquet_file_share_counts_each_time(read, monkeypatch):
    monkeypatch.setenv("ELMAN_LIMITS", "unpacked_bytes=1e5 unpacked_ratio=10")
    kind = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    with pytest.raises(DataError, match="unpacks to more than 10 times its size"):
        read(as_parquet(["x" * 1000] * 1000, kind), "a.parquet")


COLUMNS = {
    "no such column": (LabelledCorpus, "a.csv", b"a,b,c\n1,2,3\n", {}),
    "not text": (LabelledCorpus, "a.jsonl", b'{"label": "x", "text": 5}\n', {}),
    "too few columns": (LabelledCorpus, "a.csv", b"x,y\n", {"columns": [1, 3]}),
    "no label": (LabelledCorpus, "a.tsv", b"label\ttext\n\tb\n", {}),
    "no number": (NumberCorpus, "a.tsv", b"label\ttext\nx\tb\n", {}),
    "no source": (PairCorpus, "a.csv", b"a,b,c\n1,2,3\n", {}),
    "one column": (TaggedCorpus, "a.conll", b"word\n", {}),
    "a name": (TaggedCorpus, "a.conll", b"word TAG\n", {"columns": {"word": "form"}}),
    "too few tags": (TaggedCorpus, "a.conll", b"word TAG\n", {"columns": {"tag": 4}}),
    "a wrong name": (TaggedCorpus, "a.conllu", b"1\ta\t" + b"_\t" * 7 + b"_\n", {"columns": {"tag": "pos"}}),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_errors_about_columns_name_the_option(case, tmp_path):
    corpus_class, name, content, settings = COLUMNS[case]
    (tmp_path / name).write_bytes(content)
    corpus = corpus_class.open(train=str(tmp_path / name), valid_fraction=0, **settings)
    with pytest.raises((DataError, ConfigError), match="--columns"):
        list(corpus.documents("train"))


def test_settings_of_columns_name_the_option():
    with pytest.raises(ConfigError, match="--columns label,text"):
        LabelledCorpus.open(train="a.csv", columns=["a", "b", "c"])


# A damaged size statistic, at which pyarrow aborts the process if it is asked for the metadata of the column.
DAMAGED_COLUMN = (
    "c-q}l%}&BV5S})*!GuF0nWn3I=!M1uAZXxVJUB}r8X+PH(RgdRP4S>WLGcMZ`v^XO58)H|NXFe3@d@<ccbJ`>-^{nOLmD;F!Vd#?"
    "`e-7Q0TL$yfbi3RX9EzhjBXVrI%uQK+prgfzYp&(nv_av&TZdRQW}N?v{<zTp1p`B@m+`}V6g(8wTz#Z73gyn=1RsH4}fElwZL{*"
    "?nTp;?)#SeVg)Bb;lFXjs%k+%(*bG;OgMJm2FzvwNX>{ETLuL+Ixy}PX*9aHI?4(3UX6W?L(;gU9OpzU5()K)66z$GO$efaRyssy"
    "nc?SD=xQ-uYh#_K@=tZ0tgcvBrfx5b6st`VZCZ=Q&Gn@5eHUv#c>XL*=MV9+7R_e0Fioc`|1nM%x6^z7pj~g&n~dv+-&IR8RA1!_"
    "O*QWV"
)


def test_damaged_metadata_of_a_column_do_not_end_the_process(tmp_path):
    (tmp_path / "a.parquet").write_bytes(zlib.decompress(base64.b85decode(DAMAGED_COLUMN)))
    read = "[*open_corpus(DataConfig(train='a.parquet')).documents('train')]"
    found = run_forked("-c", f"from elman.corpus import DataConfig, open_corpus; {read}", cwd=tmp_path)
    assert "DataError: a.parquet: cannot be read as parquet" in found.stderr
