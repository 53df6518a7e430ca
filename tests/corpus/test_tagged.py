"""Columns of words and tags round-trip; errors name file and line."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.corpus import ColumnsConfig, DataConfig, Repairs, read_tagged
from elman.errors import ConfigError, DataError

CONLLU = """\
# sent_id = 1
# text = Vámonos al mar
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\tVB\tMood=Imp\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\tPR\tCase=Acc\t1\tobj\t_\t_
2.1\tir\tir\tVERB\tVB\t_\t_\t_\t1:x\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\tIN\t_\t5\tcase\t_\t_
4\tel\tel\tDET\tDT\tNumber=Sing\t5\tdet\t_\t_
5\tmar\tmar\tNOUN\tNN\tNumber=Sing\t1\tobl\t_\t_

# sent_id = 2
1\t3 000\t3 000\tNUM\tCD\t_\t0\troot\t_\t_
2\t#\t#\tSYM\tSY\t_\t1\tx\t_\t_
"""


def written(folder, text, name="a.conll"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def read(folder, text, name="a.conll", **settings):
    return list(read_tagged(written(folder, text, name), ColumnsConfig.make(settings)))


def pairs(sentences):
    return [list(zip(sentence.words, sentence.tags, strict=True)) for sentence in sentences]


signs = st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters=" \ufeff")
words = st.text(st.sampled_from("a#-\u00a0\u3000") | signs, min_size=1, max_size=4)
rows = st.lists(st.lists(st.tuples(words, words), min_size=1, max_size=4), min_size=1, max_size=4)


@given(rows, st.sampled_from(["\t", " "]), st.sampled_from(["\n", "\r\n"]), st.integers(1, 3), st.booleans())
def test_sentences_round_trip(tmp_path_factory, sentences, gap, end, blanks, ended):
    """Catches str.split(), which parts words at other spaces, and with the last sentence dropped."""
    if sentences[0][0][0] == "-DOCSTART-":
        return
    blocks = [end.join(gap.join(row) for row in sentence) for sentence in sentences]
    text = (end * (blanks + 1)).join(blocks) + (end if ended else "")
    # a sign that begins no comment here: a word may begin with #
    found = read(tmp_path_factory.mktemp("columns"), text, comment="\x01")
    assert pairs(found) == sentences


def test_columns_can_be_counted_from_both_ends(tmp_path):
    text = "The DT B-NP O\ncat NN I-NP O\n"
    assert pairs(read(tmp_path, text)) == [[("The", "O"), ("cat", "O")]]
    assert pairs(read(tmp_path, text, tag=2)) == [[("The", "DT"), ("cat", "NN")]]
    assert pairs(read(tmp_path, text, word=-3, tag=-2)) == [[("DT", "B-NP"), ("NN", "I-NP")]]
    assert read(tmp_path, text, tag=0)[0].tags == ()
    assert read(tmp_path, "The\ncat\n", tag=0)[0].words == ("The", "cat")


def test_comments_and_words_that_begin_with_the_same_sign(tmp_path):
    """Catches every line that begins with # taken for a comment."""
    text = "# id = 1\n# text = hi #1\nhi\tX\n#\tY\n#1\tZ\n\n#tag\tW\n\n# newdoc\n\n# id = 2\nbye\tX\n"
    expected = [[("hi", "X"), ("#", "Y"), ("#1", "Z")], [("#tag", "W")], [("bye", "X")]]
    found = read(tmp_path, text)
    assert pairs(found) == expected
    assert [sentence.line for sentence in found] == [3, 7, 12]
    assert pairs(read(tmp_path, "% no word\na X\n% nor this\nb Y\n", comment="%")) == [[("a", "X"), ("b", "Y")]]


def test_docstart_lines_are_not_sentences(tmp_path):
    found = read(tmp_path, "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\n")
    assert pairs(found) == [[("EU", "B-ORG")]]
    assert found[0].line == 3


def test_universal_dependencies_count_syntactic_words_only(tmp_path):
    """Catches ranges taken for words, and with empty nodes counted."""
    first, second = read(tmp_path, CONLLU, "a.conllu")
    assert list(zip(first.words, first.tags, strict=True)) == [
        ("Vamos", "VERB"),
        ("nos", "PRON"),
        ("a", "ADP"),
        ("el", "DET"),
        ("mar", "NOUN"),
    ]
    assert (first.line, second.line) == (4, 13)
    assert (second.words, second.tags) == (("3 000", "#"), ("NUM", "SYM"))
    assert read(tmp_path, CONLLU, "a.conllu", tag="xpos")[1].tags == ("CD", "SY")
    assert read(tmp_path, CONLLU, "a.conllu", tag="feats")[0].tags[2:4] == ("_", "Number=Sing")
    assert read(tmp_path, CONLLU, "a.txt", format="conllu", tag=3)[0].tags[0] == "ir"
    assert read(tmp_path, CONLLU, "a.conllu", tag=0)[0].tags == ()


def test_zipped_files_and_folders_are_read(tmp_path):
    written(tmp_path, gzip.compress(CONLLU.encode()), "a.conllu.gz")
    written(tmp_path, "\ufeffx Y\n", "b.txt")
    repairs = Repairs()
    found = list(read_tagged(str(tmp_path), repairs=repairs))
    assert [len(sentence.words) for sentence in found] == [5, 2, 1]
    assert found[2].words == ("x",)
    assert repairs.counts == {"byte order mark": 1}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a X\n\nb Y\nc\n", 4, "1 fields (separated by spaces), but line 1 has 2"),
        ("a\tX\nb Y\n", 2, "1 fields (separated by tabs), but line 1 has 2"),
        ("a X\nb Y Z\n", 2, "3 fields"),
        ("a\tX\n\tY\n", 2, "column 1: is empty"),
        ("a\tX\nb\t\n", 2, "column -1: is empty"),
        ("\na\n", 2, "a word without a tag"),
    ],
)
def test_ragged_columns_are_errors_with_a_line_number(tmp_path, text, line, message):
    with pytest.raises(DataError) as caught:
        read(tmp_path, text)
    assert caught.value.line == line
    assert message in str(caught.value)
    assert "a.conll" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("2\tnos\t", "2\tnos\t\t", 5, "11 tab-separated fields"),
        ("2\tnos", "7\tnos", 5, "id '7' where 2"),
        ("2\tnos", "two\tnos", 5, "id 'two'"),
        ("5\tmar\tmar\tNOUN", "5\tmar\tmar\t", 10, "is empty"),
        ("\n\n# sent_id = 2", "\n# sent_id = 2", 12, "id '1' where 6"),
    ],
)
def test_conllu_errors_have_a_line_number(tmp_path, old, new, line, message):
    assert old in CONLLU
    with pytest.raises(DataError) as caught:
        read(tmp_path, CONLLU.replace(old, new), "a.conllu")
    assert caught.value.line == line
    assert message in str(caught.value)


def test_errors_for_invalid_settings_have_a_remedy(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'upos'"):
        read(tmp_path, CONLLU, "a.conllu", tag="upsos")
    with pytest.raises(ConfigError, match="give a number"):
        read(tmp_path, "a X\n", tag="upos")
    with pytest.raises(DataError, match="2 columns"):
        read(tmp_path, "a X\n", tag=3)
    with pytest.raises(DataError, match="no such file"):
        list(read_tagged(str(tmp_path / "missing.conll")))


def test_endless_sentence_is_rejected_within_bounded_memory(tmp_path):
    place = written(tmp_path, "a X\n" * 100)
    with pytest.raises(DataError, match="end sentences with a blank line"):
        list(read_tagged(place, data=DataConfig(max_record_bytes=100)))
