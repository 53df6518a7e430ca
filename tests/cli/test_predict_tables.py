"""elman predict for tables: every record keeps its fields and its place, and gets its answer."""

import csv
import json
import random
from io import StringIO

import pytest

import elman as library
from elman import files
from elman.cli.main import main
from elman.errors import DataError

QUICK = ["--device", "cpu", "--model.hidden_size", "8", "--training.max_epochs", "1"]
NAMES = ["id", "text", "label", "name", "note", "empty"]


def rows(count=300):
    """Six columns, with line breaks inside cells, empty cells, quotes and separators."""
    dice = random.Random(0)
    for number in range(count):
        text = " ".join(dice.choices(["good", "bad", "film", "plot"], k=5))
        text = "" if number % 17 == 0 else text.replace(" ", "\r\n", 1) if number % 10 == 0 else text
        note = 'two\nlines, "quoted"' if number % 7 == 0 else "x"
        yield [str(number), text, "a,b" if number % 3 else "", f"é{number}", note, ""]


def csv_text(found, line_end="\r\n", **style):
    text = StringIO()
    csv.writer(text, lineterminator=line_end, **style).writerows([NAMES, *found])
    return text.getvalue()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A classifier."""
    folder = tmp_path_factory.mktemp("classifier")
    texts = [
        f"{label}\tthe {word} film {number % 5}"
        for number in range(40)
        for label, word in (("p", "good"), ("n", "bad"))
    ]
    (folder / "train.tsv").write_text("label\ttext\n" + "\n".join(texts) + "\n")
    with pytest.raises(SystemExit):
        main(["train", "--task", "classify", "--data", str(folder / "train.tsv"), "--run", str(folder / "r"), *QUICK])
    return folder / "r"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_bytes(b"\xef\xbb\xbf" + csv_text(rows()).encode())
    return tmp_path


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_a_csv_keeps_its_rows_columns_and_order(elman, place, run):
    """Catches a header or a half of a cell answered as a row, a repaired cell, an answer beside another row."""
    ended = elman("predict", run, "--data", "in.csv", "--columns", "text", "--out", "out.csv")
    assert (ended.code, ended.out) == (0, "Wrote 300 answers to out.csv\n"), ended.err
    names, *found = read_csv("out.csv")
    assert names == [*NAMES, "predicted_label", "probability"]
    assert [row[:6] for row in found] == list(rows())
    model = library.load(run)
    for row in found:
        text = row[1].replace("\r\n", "\n")
        if not text:
            assert row[6:] == ["", ""]
        else:
            answer = model.predict(text)
            assert row[6] == answer["label"]
            assert float(row[7]) == pytest.approx(answer["probability"], abs=1e-5)
    assert not (place / "out.csv.parts").exists()
    streamed = elman("predict", run, "--from", "csv", stdin=(place / "in.csv").read_bytes())
    assert [row[:7] for row in csv.reader(StringIO(streamed.out, newline=""))] == [row[:7] for row in [names, *found]]


def test_all_formats_give_the_same_answers(elman, place, run):
    """Catches types lost in Parquet, fields lost in JSON lines."""
    parquet, pyarrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    simple = [[number, text.replace("\r\n", " "), note.replace("\n", " ")] for number, text, *_, note, _ in rows()]
    with open("in.tsv", "w", encoding="utf-8") as file:
        file.writelines("\t".join(row) + "\n" for row in [["id", "text", "note"], *simple])
    records = [{"id": int(number), "text": text, "note": {"deep": [note]}} for number, text, note in simple]
    (place / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    columns = {"id": pyarrow.array([one["id"] for one in records], pyarrow.int16()), "text": [row[1] for row in simple]}
    parquet.write_table(pyarrow.table({**columns, "note": [one["note"] for one in records]}), "in.parquet")
    for form in ("tsv", "jsonl", "parquet"):
        ended = elman("predict", run, "--data", f"in.{form}", "--out", f"out.{form}")
        assert ended.code == 0, ended.err
    lines = [line.split("\t") for line in (place / "out.tsv").read_text().splitlines()]
    assert lines[0] == ["id", "text", "note", "label", "probability"]
    assert [line[:3] for line in lines[1:]] == simple
    objects = [json.loads(line) for line in (place / "out.jsonl").read_text().splitlines()]
    assert [{name: one[name] for name in ("id", "text", "note")} for one in objects] == records
    table = parquet.read_table("out.parquet")
    assert table.schema.field("id").type == pyarrow.int16()
    assert table.select(["id", "text", "note"]).to_pylist() == records
    labels = [line[3] for line in lines[1:]]
    assert [one["label"] or "" for one in objects] == labels == [one or "" for one in table["label"].to_pylist()]
    assert elman("predict", run, "--data", "in.tsv", "--out", "again.jsonl").code == 0
    lines = (place / "again.jsonl").read_text().splitlines()
    assert [json.loads(line)["label"] or "" for line in lines] == labels


def test_lines_of_fasttext_keep_their_labels_apart(elman, place, run):
    """Catches labels that are read as words of the text."""
    (place / "in.txt").write_text("__label__n a bad film\n\n__label__p __label__x good plot\n")
    assert elman("predict", run, "--data", "in.txt", "--out", "out.jsonl").code == 0
    found = [json.loads(line) for line in (place / "out.jsonl").read_text().splitlines()]
    assert [(one["label"], one["text"]) for one in found] == [("n", "a bad film"), ("", ""), ("p x", "good plot")]
    alone = library.load(run).predict(["a bad film", "", "good plot"])
    assert [one["predicted_label"] for one in found] == [one["label"] for one in alone]
    assert elman("eval", run, "--data", "in.txt").code == 1  # two labels, which no training text has
    (place / "in.txt").write_text("__label__n a bad film\n__label__p good plot\n")
    assert elman("eval", run, "--data", "in.txt").code == 0


def test_probabilities_are_columns(elman, place, run):
    assert elman("predict", run, "--data", "in.csv", "--out", "out.csv", "--probabilities").code == 0
    names, *found = read_csv("out.csv")
    assert names[6:] == ["predicted_label", "probability", "probability_n", "probability_p"]
    assert all(sum(map(float, row[8:])) == pytest.approx(1) for row in found if row[1])


def test_answers_that_are_not_sure_are_left_empty(elman, place, run):
    """In tables and lines, which differ in nothing else; catches an answer at the limit, and all left empty."""
    assert elman("predict", run, "--data", "in.csv", "--out", "all.csv").code == 0
    chances = sorted(float(row[7]) for row in read_csv("all.csv")[1:] if row[7])
    least = chances[len(chances) // 2]
    assert chances[0] < least < chances[-1]
    assert elman("predict", run, "--data", "in.csv", "--out", "sure.csv", "--min-probability", least).code == 0
    names, *found = read_csv("sure.csv")
    assert names == [*NAMES, "predicted_label", "probability"]
    for row, answered in zip(found, read_csv("all.csv")[1:], strict=True):
        sure = bool(row[7]) and float(row[7]) >= least
        assert row == [*answered[:6], answered[6] if sure else "", answered[7]]
    assert {bool(row[6]) for row in found} == {True, False}
    assert elman("predict", run, "--min-probability", "1", stdin=b"good film\n").out == "\tgood film\n"
    assert "between 0 and 1" in elman("predict", run, "--min-probability", "2", stdin=b"good film\n").err
    both = library.load(run).predict("good film", min_probability=1.0, probabilities=True)
    assert (both["label"], {*both["probabilities"]}) == (None, {"n", "p"})


def test_wrong_columns_and_files_are_refused(elman, place, run):
    def refused(*words, **more):
        ended = elman("predict", run, *words, **more)
        assert ended.code in (1, 2), ended.err
        return ended.err.splitlines()[-1]

    assert "in.csv, column 'texts': no such column" in refused("--data", "in.csv", "--columns", "texts")
    assert "--columns" in refused("--data", "in.csv", "--columns", "texts")
    assert "is the input" in refused("--data", "in.csv", "--out", "in.csv")
    assert "--to" in refused("--data", "in.csv", "--out", "out.xyz")
    assert "--out" in refused("--data", "in.csv", "--to", "parquet")
    (place / "bad.csv").write_text("id,text\n1,good film\n2,bad,film\n")
    assert "bad.csv, line 3: 3 fields" in refused("--data", "bad.csv", "--out", "out.csv")


@pytest.mark.parametrize(
    ("table", "reason", "form"),
    [
        ("\ufeff" + csv_text(rows(9)), "line 1: the line has names of columns, 'text'", "csv"),
        ("id;text\n1;good film\n", "line 1: the line has names of columns, 'text'", "csv"),
        ("id\ttext\n1\tgood film\n", "line 1: the line has names of columns, 'text'", "tsv"),
        ('0,bad film\n1,"good\nfilm"\n', "line 2: the line begins a cell", "csv"),
        ('0,bad film\n"1\n2","good\n\nfilm"\n', "line 2: the line begins a cell", "csv"),
    ],
    ids=["csv", "semicolons", "tsv", "cell", "first cell"],
)
def test_a_table_is_not_answered_line_by_line(elman, place, run, table, reason, form):
    """Neither its header nor the parts of its cells, unless asked for."""
    ended = elman("predict", run, stdin=table)
    assert (ended.code, ended.out.count("\n")) == (1, reason.startswith("line 2"))
    assert reason in ended.err
    assert f"--from {form}" in ended.err
    assert elman("predict", run, "--from", "text", stdin=table).out.count("\n") == len(table.splitlines())


@pytest.mark.parametrize(
    "text", ['a, b\n"Well,\nyou came", he said\n', 'a\n"one\ntwo"\n', "text\nfilm\n", 'a,b\n,"c\n']
)
def test_quotes_and_commas_of_texts_are_no_table(elman, place, run, text):
    assert elman("predict", run, stdin=text).out.count("\n") == text.count("\n")


def test_tables_without_a_header(elman, place, run):
    (place / "bare.csv").write_text("1,good film\n2,bad film\n")
    assert elman("predict", run, "--data", "bare.csv", "--columns", "2", "--out", "out.csv").code == 0
    assert [row[:2] for row in read_csv("out.csv")] == [["1", "good film"], ["2", "bad film"]]


def test_a_failed_job_goes_on_where_it_stopped(elman, place, run, monkeypatch):
    """Catches parts predicted twice, rows lost or doubled, and parts of another input used again."""
    monkeypatch.setattr("elman.pipeline.predict_tables.PART_RECORDS", 64)
    ask = ("predict", run, "--data", "in.csv", "--out", "out.csv")
    assert elman(*ask).code == 0
    whole = (place / "out.csv").read_bytes()
    written = []

    def fail(operation, *paths):
        written.extend(path.name for path in paths if operation == "rename")
        if len(written) > 4:
            raise OSError(28, "No space left on device")

    (place / "out.csv").unlink()
    monkeypatch.setattr(files, "hook", fail)
    failed = elman(*ask)
    assert failed.code == 1
    assert "No space left" in failed.err
    assert not (place / "out.csv").exists()
    assert len(list((place / "out.csv.parts").glob("0*.csv"))) == 2
    monkeypatch.setattr(files, "hook", lambda operation, *paths: written.append(operation))
    written.clear()
    assert elman(*ask).code == 0
    assert (place / "out.csv").read_bytes() == whole
    assert written.count("rename") == 5 - 2 + 1  # the other parts, and the whole
    (place / "in.csv").write_bytes((place / "in.csv").read_bytes().replace(b"good", b"bad"))
    assert elman(*ask).code == 0
    assert b"good" not in (place / "out.csv").read_bytes()


def test_a_tagger_reads_conll_tables_and_lines(elman, place):
    """Catches comments, multiword tokens or other columns lost."""
    words = ["Katze", "Maus", "Kuh", "Ente", "Gans"]
    (place / "t.conll").write_text("".join(f"die DET\n{a} NOUN\n{b} NOUN\n\n" for a in words for b in words))
    assert elman("train", "--task", "tag", "--data", "t.conll", "--run", "r", *QUICK).code == 0
    (place / "new.conll").write_text("-DOCSTART- x\n\n# about\ndie a\nKatze b\n\nKatze c\n")
    ended = elman("predict", "r", "--data", "new.conll", "--out", "out.conll")
    assert ended.code == 0, ended.err
    lines = (place / "out.conll").read_text().split("\n")
    shown = [" ".join(line.split()[:2]) for line in lines]
    assert shown == ["-DOCSTART- x", "", "# about", "die a", "Katze b", "", "Katze c", "", ""]
    assert lines[0].split()[2] == "_"
    assert {lines[at].split()[2] for at in (3, 4, 6)} <= {"DET", "NOUN"}
    (place / "new.csv").write_text("id,text\n7,die Katze\n8,\n")
    assert elman("predict", "r", "--data", "new.csv", "--out", "out.csv").code == 0
    names, first, second = read_csv("out.csv")
    assert names == ["id", "text", "words", "tags"]
    assert first[:3] == ["7", "die Katze", "die Katze"]
    assert len(first[3].split()) == 2
    assert second == ["8", "", "", ""]


def test_a_tagger_splits_raw_sentences_and_says_so(elman, place):
    """Catches a tag for "Katze.", a tag for an empty line, and words that were split already split again."""
    sentences = [f"die DET\n{word} NOUN\n- X\n. X\n\n" for word in ("Katze", "Maus", "Kuh") for _ in range(6)]
    (place / "t.conll").write_text("".join(sentences))
    assert elman("train", "--task", "tag", "--data", "t.conll", "--run", "r", *QUICK).code == 0

    def words(*options, stdin=None):
        ended = elman("predict", "r", *options, stdin=stdin)
        assert ended.code == 0, ended.err
        return [[line.split("\t")[0] for line in block.splitlines()] for block in ended.out.split("\n\n")], ended.err

    raw = "Die Katze-Kuh.\n\nDie Maus - U.S. .\n"
    found, said = words(stdin=raw.encode())
    assert found == [["Die", "Katze", "-", "Kuh", "."], [], ["Die", "Maus", "-", "U.S.", "."], []]
    assert "note: 1 raw sentences were split into words, by Unicode rules" in said
    found, said = words("--from", "words", stdin=raw.encode())
    assert found[0] == ["Die", "Katze-Kuh."]
    assert "note" not in said
    (place / "in.jsonl").write_text('{"words": ["Die", "Katze-Kuh."]}\n{"words": "Die Kuh."}\n{"text": "Kuh."}\n')
    assert elman("predict", "r", "--data", "in.jsonl", "--out", "out.jsonl").code == 0
    found = [json.loads(line) for line in (place / "out.jsonl").read_text().splitlines()]
    assert [len(one["tags"]) for one in found] == [2, 2, 2]
    for name in ("in.csv", "in.tsv"):
        separator = "," if name == "in.csv" else "\t"
        (place / name).write_text(f"id{separator}body\n7{separator}die Kuh.\n8{separator}\n")
        ended = elman("predict", "r", "--data", name, "--columns", "body", "--out", "out.csv")
        assert ended.code == 0, ended.err
        assert "note: 1 raw sentences" in ended.err
        rows = read_csv("out.csv")
        assert rows[0] == ["id", "body", "words", "tags"]
        assert rows[1][:3] == ["7", "die Kuh.", "die Kuh ."]
        assert rows[2] == ["8", "", "", ""]


def test_a_long_job_gives_freed_memory_back(run, tmp_path, monkeypatch):
    """However it is written; the allocator would keep more and more of it."""
    from elman.pipeline import predict_tables

    released = []
    monkeypatch.setattr(predict_tables, "RELEASE_RECORDS", 100)
    monkeypatch.setattr("elman.memory.release_freed", lambda: released.append(1))
    (tmp_path / "in.csv").write_text("text\n" + "good film\n" * 350)
    job = predict_tables.TablePrediction(library.load(run), str(tmp_path / "in.csv"))
    job.to_stream(lambda part: None)
    assert len(released) == 3
    job = predict_tables.TablePrediction(library.load(run), str(tmp_path / "in.csv"))
    job.to_file(tmp_path / "out.csv")
    assert len(released) == 6


def test_records_are_streamed(run, tmp_path):
    """Catches a table held in memory: each part is gone when the next one is read."""
    from elman.pipeline.predict_tables import TablePrediction

    (tmp_path / "in.csv").write_text("text\n" + "good film\n" * 1000 + "a,b\n")
    seen = []
    with pytest.raises(DataError, match="line 1002"):
        TablePrediction(library.load(run), str(tmp_path / "in.csv")).to_stream(seen.append)
    assert b"".join(seen).count(b"\n") == 1001  # the rows before the wrong one were answered
