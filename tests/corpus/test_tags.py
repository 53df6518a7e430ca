"""Legal tag transitions, and detection of the tagging scheme."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.corpus import Repairs, TaggedSentence, TagSet
from elman.errors import DataError

# What entities look like in each scheme: of one word, of two, of three; and beside one of its own type.
ALONE = {"bio": ["B", "BI", "BII"], "bioes": ["S", "BE", "BIE"], "iob1": ["I", "II", "III"]}


def sentence(tags):
    return TaggedSentence(tuple("w" for _ in tags), tuple(tags), "a.conll", 7)


def spelled(scheme, entities):
    """Tags of entities, given as (type or None, length), each written as the scheme has it."""
    tags, before = [], None
    for kind, length in entities:
        letters = ALONE[scheme][length - 1]
        if scheme == "iob1" and kind == before:
            letters = "B" + letters[1:]
        tags += [f"{letter}-{kind}" for letter in letters] if kind else ["O"] * length
        before = kind
    return tags


texts = st.lists(st.tuples(st.sampled_from([None, "PER", "LOC"]), st.integers(1, 3)), max_size=5)


@given(st.sampled_from(sorted(ALONE)), texts)
def test_every_encoding_of_entities_is_legal(scheme, entities):
    """Catches B-PER E-PER forbidden."""
    tags = spelled(scheme, entities)
    names = [f"{letter}-{kind}" for letter in "BIES"[: 4 if scheme == "bioes" else 2] for kind in ("PER", "LOC")]
    known = TagSet(["O", *names], scheme)
    assert known.is_legal(tags)
    legal, numbers = known.legal(), known.encode(sentence(tags)).tolist()
    assert all(legal.between[a, b] for a, b in pairwise(numbers))
    assert not numbers or (legal.start[numbers[0]] and legal.end[numbers[-1]])


SOME = ["O", "B-PER", "I-PER", "E-PER", "S-PER", "I-LOC"]


def decoded(scheme, tags):
    """All ways to read a row of tags as entities of the scheme."""
    if not tags:
        return 1
    found = 0
    for kind in (None, "PER", "LOC"):
        for length in (1, 2, 3) if kind else (1,):
            found += spelled(scheme, [(kind, length)]) == tags[:length] and decoded(scheme, tags[length:])
    return found


@pytest.mark.parametrize(("scheme", "names"), [("bio", [*SOME[:3], "I-LOC"]), ("bioes", SOME)])
def test_sequences_that_encode_no_entities_are_illegal(scheme, names):
    """Catches B-PER I-LOC allowed, and ends that allow everything."""
    known = TagSet(names, scheme)
    start, end, between = known.legal()
    for tags in (list(row) for length in (1, 2, 3) for row in product(names, repeat=length)):
        possible = bool(decoded(scheme, tags))
        assert known.is_legal(tags) == possible, tags
        numbers = known.encode(sentence(tags))
        steps = all(between[pair] for pair in pairwise(numbers))
        assert (start[numbers[0]] and steps and end[numbers[-1]]) == possible, tags


@pytest.mark.parametrize(
    ("rows", "scheme", "entities"),
    [
        (["B-X I-X O B-X", "O"], "bio", True),
        (["B-X E-X O S-Y"], "bioes", True),
        (["U-X O B-X L-X"], "bioes", True),
        (["I-X I-X O I-Y B-Y"], "iob1", True),
        (["B-X O I-X"], "none", True),
        (["B-X B-Y O"], "bio", True),
        (["NOUN VERB", "X"], "none", False),
        (["-LRB- S B"], "none", False),
        (["O O"], "none", False),
    ],
)
def test_strictest_consistent_scheme_is_detected(rows, scheme, entities):
    """Catches the scheme judged by the names alone."""
    found = TagSet.of(sentence(row.split()) for row in rows)
    assert (found.scheme, found.marks_entities) == (scheme, entities)
    assert found.names == sorted(set(" ".join(rows).split()))


def test_unseen_tags_are_errors_with_a_location():
    known = TagSet(["NOUN", "VERB"])
    assert known.decode(known.encode(sentence(["VERB", "NOUN"]))) == ("VERB", "NOUN")
    with pytest.raises(DataError, match=r"a\.conll, line 7: tag 'NOUNS' of 'w'.*did you mean 'NOUN'"):
        known.encode(sentence(["VERB", "NOUNS"]))
    with pytest.raises(DataError, match="no tags found"):
        TagSet.of([])


def checked(scheme, *rows):
    repairs = Repairs()
    found = TagSet.checked(lambda: (sentence(row.split()) for row in rows), scheme, repairs)
    return found, repairs.describe()


@pytest.mark.parametrize(
    ("scheme", "rows", "fits"),
    [
        ("bioes", ["O O", "B-X I-X O", "B-Y I-Y", "B-X"], "bio"),
        ("bio", ["S-X O", "B-X E-X O"], "bioes"),
        ("bio", ["I-X I-X O", "I-Y B-Y"], "iob1"),
        ("iob1", ["B-X O B-X", "B-Y I-Y"], "bio"),
        ("iob1", ["B-X O S-X", "I-Y", "E-Y"], "none"),
    ],
)
def test_wrong_scheme_is_an_error_that_names_the_right_one(scheme, rows, fits):
    """Catches: letters of a scheme not looked at; the ends of an entity not looked at; the strictest scheme named."""
    with pytest.raises(
        DataError, match=rf"a\.conll, line 7: .*the scheme '{scheme}'.*'{fits}' fits.*data.scheme: {fits}"
    ):
        checked(scheme, *rows)


def test_few_illegal_entities_are_counted():
    """Catches: none counted where the scheme is found out; sentences counted instead of entities."""
    rows = ["B-X I-X O B-X", "I-X O I-Y", "B-X I-Y", *["B-X O B-Y"] * 4]
    found, told = checked("bio", *rows)
    assert found.scheme == "bio"
    assert told == ["3 × entity that violates the scheme bio (first: a.conll, line 7)"]
    found, told = checked("auto", *rows)
    assert found.scheme == "none"
    assert told[0].startswith("3 × entity that violates the scheme bio, so all tag transitions are allowed")
    assert checked("none", *rows)[1] == checked("auto", *rows[:1])[1] == checked("bio", "NOUN VERB")[1] == []
