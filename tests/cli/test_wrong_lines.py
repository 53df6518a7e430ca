"""Invalid lines on stdin: earlier lines are answered, and the error names the line."""

from io import BytesIO, TextIOWrapper

import pytest

from elman.cli.main import main

TEXTS = {
    "classify": "label\ttext\n" + "a\tone two\nb\tthree\n" * 10,
    "tag": "the\tD\ncat\tN\n\n" * 10,
    "translate": "source\ttarget\n" + "ab\tAB\nba\tBA\n" * 10,
    "masked": "one two three\n" * 40,
    "language-model": "one two three\n" * 40,
}
FILES = {"classify": "d.tsv", "tag": "d.conll", "translate": "d.tsv"}
FIELDS = {"tag": "words", "translate": "source"}


@pytest.fixture(scope="module", params=TEXTS)
def run(request, tmp_path_factory):
    """The task, and a run folder; tests only read it."""
    task, folder = request.param, tmp_path_factory.mktemp("lines")
    data = folder / FILES.get(task, "d.txt")
    data.write_text(TEXTS[task])
    sides = ("encoder.", "decoder.") if task == "translate" else ("",)
    sizes = [word for side in sides for word in (f"--model.{side}hidden_size", "8")]
    words = ["train", "--task", task, "--data", data, "--valid", data, "--run", folder / "r", *sizes]
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in [*words, "--training.max_steps", "1", "--device", "cpu"]])
    assert not ended.value.code
    return task, folder / "r"


@pytest.mark.slow
def test_lines_before_an_invalid_line_are_answered(elman, run):
    """Catches: an error of a whole list of lines; a line counted from 0; a missing text taken for an empty one."""
    task, folder = run
    good = '{"text": "one <mask>"}\n'
    for wrong in ('{"txt": "bad"}', '{"text": 3}', "{}", "[]", "not json"):
        ended = elman("predict", folder, "--from", "jsonl", "--json", stdin=f"{good}{good}{wrong}\n{good}")
        assert ended.code == 1, wrong
        assert len(ended.out.splitlines()) == 2
        assert "standard input, line 3" in ended.err
        if wrong == '{"txt": "bad"}':
            assert f"'{FIELDS.get(task, 'text')}'" in ended.err
            assert "'txt'" in ended.err


@pytest.mark.slow
def test_a_line_without_a_mask_is_named(elman, run):
    task, folder = run
    if task != "masked":
        pytest.skip("only masked models fill gaps")
    ended = elman("predict", folder, stdin="one <mask>\nnothing\n")
    assert ended.code == 1
    assert len(ended.out.splitlines()) == 1
    assert "standard input, line 2" in ended.err
    assert "<mask>" in ended.err


def test_invalid_utf8_is_replaced_and_counted(elman, trained, monkeypatch):
    """Catches: replaced without a word; lines counted from 0."""
    given = BytesIO("größe\n".encode() + b"a\xff\xfeb\nok\n\xc3\n")
    monkeypatch.setattr("sys.stdin", TextIOWrapper(given))
    ended = elman("score", trained)
    assert ended.code == 0
    assert [line.split("\t")[2] for line in ended.out.splitlines()] == ["größe", "a\ufffd\ufffdb", "ok", "\ufffd"]
    assert "repaired: 2 × invalid UTF-8, replaced (first: standard input, line 2)" in ended.err
    assert "repaired" not in elman("score", trained, stdin="größe\n").err


def test_json_objects_can_be_scored(elman, trained):
    for wrong in ('{"txt": "b"}', '{"text":' * 100_000):
        ended = elman("score", trained, "--from", "jsonl", stdin=f'{{"text": "a"}}\n{wrong}\n')
        assert ended.code == 1
        assert len(ended.out.splitlines()) == 1
        assert "standard input, line 2" in ended.err
