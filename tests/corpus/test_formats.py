"""A data format is one file with a registered class: users add their own with --module."""

import pytest

from elman import iterate
from elman.comparison.user_modules import read_modules
from elman.corpus import RECORD_FORMATS, DataConfig, LabelledCorpus, open_corpus, read_pairs
from elman.errors import ConfigError, DataError

MODULE = '''
"""Records as blocks of `key: value` lines."""

from elman.corpus import RECORD_FORMATS, RecordFormat
from elman.corpus.record_formats import require_column
from elman.corpus.text import whole_lines


@RECORD_FORMATS.register("key-value")
class KeyValue(RecordFormat):
    suffixes = (".kv",)

    def read(self, reader, columns):
        record, first = {}, 0
        for line in whole_lines(reader):
            text = reader.decode(line.raw, line.number)
            if text.strip():
                key, _, value = text.partition(": ")
                record[key], first = value, first or line.number
            elif record:
                yield tuple(record[require_column(reader, record, column, first)] for column in columns), first
                record, first = {}, 0
        if record:
            yield tuple(record[require_column(reader, record, column, first)] for column in columns), first
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A file of 40 records, and the registry with the user's format for the time of the test."""
    monkeypatch.setattr(RECORD_FORMATS, "_items", dict(RECORD_FORMATS._items))
    (tmp_path / "key_value.py").write_text(MODULE)
    read_modules([tmp_path / "key_value.py"])
    records = [
        f"text: {word} {number}\nlabel: {word}\ntarget: {number}" for number in range(20) for word in ("yes", "no")
    ]
    (tmp_path / "data.kv").write_text("\n\n".join(records) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_registered_format_is_chosen_by_suffix_and_by_name(folder):
    assert DataConfig(train="data.kv", format="key-value").format == "key-value"
    (folder / "data.txt").write_bytes((folder / "data.kv").read_bytes())
    for settings in ({"train": "data.kv"}, {"train": "data.txt", "format": "key-value"}):
        corpus = open_corpus(DataConfig(**settings))
        documents = [*corpus.documents("train"), *corpus.documents("valid")]
        assert sorted(document.text for document in documents)[:2] == ["no 0", "no 1"]
        assert len(documents) == 40
    assert [pair.target_text for pair in read_pairs("data.kv", columns=("text", "target"))][:3] == ["0", "0", "1"]


def test_labelled_texts_can_be_read_and_trained_on_in_a_registered_format(folder):
    assert {text.labels for text in LabelledCorpus.open(train="data.kv").texts("train")} == {("yes",), ("no",)}
    recipe = {"task": "classify", "device": "cpu", "data": {"train": "data.kv"}, "model": {"hidden_size": 8}}
    recipe["training"] = {"max_steps": 30, "learning_rate": 0.05}
    *_, last = iterate(recipe, run=folder / "run")
    assert last.kind == "result"
    assert last.values["valid"]["accuracy"] == 1.0


def test_missing_columns_and_unknown_formats_are_reported(folder):
    with pytest.raises(DataError, match=r"data.kv, line 1.*no such column.*'label', 'target'"):
        next(open_corpus(DataConfig(train="data.kv", column="body")).documents("train"))
    with pytest.raises(ConfigError, match=r"unknown data format 'key-valu' \(did you mean 'key-value'\?\)"):
        DataConfig.make({"train": "data.kv", "format": "key-valu"})
    with pytest.raises(ConfigError, match="--module"):
        DataConfig.make({"train": "data.kv", "format": "toml"})
