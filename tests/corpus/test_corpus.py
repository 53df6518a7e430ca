"""The public interface of a corpus: sources, splits, fingerprints and repairs."""

import gc
import io
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from processes import environment, run_python

from elman.config import commented_yaml
from elman.corpus import Corpus, DataConfig, Document, open_corpus, resolve
from elman.errors import ConfigError, DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.txt", "deep/c.md", ".hidden", ".git/config"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{path.stem} one\n{path.stem} two\n")
    return tmp_path


def names(corpus: Corpus, folder: Path) -> list[str]:
    return [str(Path(name).relative_to(folder)) for name in corpus.sources("train")]


def test_folder_is_read_in_order_without_hidden_files(folder):
    assert names(open_corpus(DataConfig(train=str(folder))), folder) == ["a.txt", "b.txt", "deep/c.md"]


def test_patterns_and_lists_name_files(folder):
    places = [f"{folder}/deep/*", f"{folder}/?.txt"]
    assert names(open_corpus(DataConfig(train=places)), folder) == ["deep/c.md", "a.txt", "b.txt"]
    assert names(open_corpus(DataConfig(train=f"{folder}/**/*.md")), folder) == ["deep/c.md"]


@pytest.mark.parametrize(
    ("name", "tokenizer", "unit", "carry"),
    [
        ("a.txt", "word", "line", True),
        ("a.txt.gz", "char", "file", True),
        ("a.unknown", "bpe", "file", True),
        ("a", "byte", "file", True),
        ("a.jsonl", "word", "record", False),
        ("a.csv.gz", "char", "record", False),
        ("a.b.PARQUET", "bpe", "record", False),
        ("a.json", "bpe", "record", False),
    ],
)
def test_automatic_unit_depends_on_file_and_tokenizer(tmp_path, name, tokenizer, unit, carry):
    (tmp_path / name).write_bytes(b"")
    corpus = open_corpus(DataConfig(train=str(tmp_path / name)), tokenizer)
    assert (corpus.unit, corpus.carry) == (unit, carry)
    config = DataConfig(train=str(tmp_path / name), boundary="reset" if carry else "carry")
    assert resolve(config, tokenizer).boundary == config.boundary


def test_each_setting_has_a_help_text():
    assert all(field.description for field in DataConfig.described_fields().values())
    assert "valid_fraction: 0.1" in commented_yaml(DataConfig())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"valid_fraction": 0.5, "test_fraction": 0.5}, "at most 0.9"),
        ({"column": 0}, "counted from 1"),
        ({"train": "a", "language": {"type": "b"}}, "either files"),
        ({"max_record_bytes": 0}, "max_record_bytes"),
        ({"trian": "a"}, "did you mean 'train'"),
    ],
)
def test_contradictory_settings_are_rejected(settings, message):
    with pytest.raises(ConfigError, match=message):
        DataConfig.make(settings)


def test_units_that_do_not_fit_the_files_are_rejected(folder):
    with pytest.raises(ConfigError, match="'record' is for tables"):
        open_corpus(DataConfig(train=str(folder), document="record"))
    with pytest.raises(ConfigError, match="'block' is for text files"):
        open_corpus(DataConfig(train=str(folder), format="jsonl", document="block"))
    (folder / "d.jsonl").write_text("{}")
    with pytest.raises(DataError, match=r"text and records \(.*d.jsonl\) in one corpus"):
        open_corpus(DataConfig(train=str(folder)))
    with pytest.raises(ConfigError, match="no data"):
        open_corpus(DataConfig())


def test_error_for_a_missing_split_has_a_remedy(folder):
    corpus = open_corpus(DataConfig(train=str(folder)))
    assert corpus.splits() == ["train", "valid"]
    with pytest.raises(ConfigError, match=r"no 'test' split: give data.test files or set data.test_fraction"):
        corpus.documents("test")
    only = open_corpus(DataConfig(test=str(folder)))
    assert only.splits() == ["test"]
    assert len(list(only.documents("test"))) == 6


@pytest.mark.slow
def test_standard_input_can_be_read_repeatedly_and_is_cleaned_up(monkeypatch):
    data = b"".join(b"line %d\n" % number for number in range(50))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    corpus = open_corpus(DataConfig(train="-"))
    path = corpus._sources["train"][0].path
    assert path.exists()
    assert corpus.sources("train") == ["standard input"]
    counts = [len(list(corpus.documents(split))) for split in ("train", "valid", "train")]
    assert counts[0] == counts[2]
    assert sum(counts[:2]) == 50
    del corpus
    gc.collect()
    assert not path.exists()
    with pytest.raises(ConfigError, match="used only once"):
        open_corpus(DataConfig(train="-", valid="-"))


def test_standard_input_is_cleaned_up_at_exit(tmp_path):
    program = (
        "from elman.corpus import *; c = open_corpus(DataConfig(train='-')); print(len(list(c.documents('train'))))"
    )
    done = run_python("-c", program, input="a\nb\nc\n", env=environment(TMPDIR=str(tmp_path)), check=True)
    assert done.stdout == "2\n"
    assert not list(tmp_path.iterdir())


def test_reading_a_split_twice_counts_its_repairs_once(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"".join(b"%d \xff\n" % number for number in range(30)))
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbfx \xff\n")
    corpus = open_corpus(DataConfig(train=str(tmp_path / "a.txt"), test=str(tmp_path / "b.txt")))
    assert not corpus.repairs
    list(corpus.documents("train"))
    assert corpus.repairs.counts == {"invalid UTF-8": 30}
    for split in ("valid", "train", "test", "test"):
        list(corpus.documents(split))
    assert corpus.repairs_in("train").counts == {"invalid UTF-8": 30}
    assert corpus.repairs_in("test").counts == {"invalid UTF-8": 1, "byte order mark": 1}
    assert corpus.repairs.counts == {"invalid UTF-8": 31, "byte order mark": 1}
    assert corpus.repairs.first["invalid UTF-8"].endswith("a.txt, line 1")


def test_fingerprint_depends_on_contents_and_settings_not_file_names(folder):
    def fingerprint(split="train", train="a.txt", **settings):
        return open_corpus(DataConfig(train=str(folder / train), **settings)).fingerprint(split)

    base = fingerprint()
    (folder / "copy.md").write_bytes((folder / "a.txt").read_bytes())
    assert fingerprint(train="copy.md") == base
    others = [
        fingerprint("valid"),
        fingerprint(train="b.txt"),
        fingerprint(valid_fraction=0.2),
        fingerprint(valid_fraction=0),
        fingerprint(boundary="reset"),
        fingerprint(document="block"),
        fingerprint(train="."),
    ]
    assert len({base, *others}) == 8
    (folder / "a.txt").write_text("changed")
    assert fingerprint() != base


class Sentences:
    def __init__(self, settings: dict):
        self.settings = settings

    def split(self, name: str):
        count = 0 if name == self.settings.get("without") else self.settings["count"]
        yield from (Document(f"{name} {number}") for number in range(count))


def test_a_synthetic_language_is_a_corpus_and_is_imported_only_when_asked_for(monkeypatch):
    package = ModuleType("elman.corpus.synthetic")
    package.make_language = Sentences
    monkeypatch.setitem(sys.modules, "elman.corpus.synthetic", package)
    corpus = open_corpus(DataConfig(language={"type": "some", "count": 3}))
    assert isinstance(corpus.language, Sentences)
    assert (corpus.unit, corpus.carry, corpus.splits()) == ("line", False, ["train", "valid", "test"])
    assert [document.text for document in corpus.documents("valid")] == ["valid 0", "valid 1", "valid 2"]
    other = open_corpus(DataConfig(language={"type": "some", "count": 4}), languages=Sentences)
    fingerprints = {corpus.fingerprint("train"), corpus.fingerprint("valid"), other.fingerprint("train")}
    assert len(fingerprints) == 3
    short = open_corpus(DataConfig(language={"count": 1, "without": "test"}), languages=Sentences)
    assert short.splits() == ["train", "valid"]


def test_importing_the_corpus_stays_light():
    heavy = "{'torch', 'datasets', 'pyarrow', 'elman.corpus.synthetic'}"
    program = f"import sys, elman.corpus; print(sorted(set(sys.modules) & {heavy}))"
    assert run_python("-c", program, check=True).stdout == "[]\n"
