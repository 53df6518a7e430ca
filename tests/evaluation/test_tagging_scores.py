"""Tagging metrics equal those of the CoNLL scorer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.corpus.tags import Entity
from elman.errors import DataError
from elman.evaluation import entities, score_tags
from elman.evaluation.tagging import Counts, entity_f1


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-X I-X O B-X", [("X", 0, 2), ("X", 3, 4)]),
        ("O I-X I-X", [("X", 1, 3)]),  # I- without B- begins an entity
        ("B-X I-Y I-Y", [("X", 0, 1), ("Y", 1, 3)]),  # so does a change of type
        ("I-X B-X I-X", [("X", 0, 1), ("X", 1, 3)]),
        ("B-X B-X", [("X", 0, 1), ("X", 1, 2)]),
        ("I-X O I-X", [("X", 0, 1), ("X", 2, 3)]),
        ("B-a-b I-a-b I-a", [("a-b", 0, 2), ("a", 2, 3)]),  # the first dash ends the role
        ("S-X B-X I-X E-X E-X", [("X", 0, 1), ("X", 1, 4), ("X", 4, 5)]),
        ("U-X B-X L-X", [("X", 0, 1), ("X", 1, 3)]),
        ("B I O I", [("", 0, 2), ("", 3, 4)]),
        ("NOUN VERB", []),
        ("", []),
    ],
)
def test_entities_follow_the_conll_scorer(tags, expected):
    """Catches I- continuing nothing, types not compared, and the last entity left open."""
    assert entities(tags.split()) == [Entity(*entity) for entity in expected]


def scored(gold, found):
    """The algorithm of the CoNLL scorer: one pass over both columns with O between sentences."""
    rows = [
        pair for one, other in zip(gold, found, strict=True) for pair in [*zip(one, other, strict=True), ("O", "O")]
    ]
    ends, starts = {"BB", "BO", "IB", "IO"}, {"BB", "IB", "OB", "OI"}
    before, alike = ("O", "O"), False
    counts = [0, 0, 0]
    for row in [*rows, ("O", "O")]:
        over, begun = [], []
        for last, now in zip(before, row, strict=True):
            changes = last[2:] != now[2:]
            over.append(last[0] + now[0] in ends or (last != "O" and changes))
            begun.append(last[0] + now[0] in starts or (now != "O" and changes))
        if alike and all(over) and before[0][2:] == before[1][2:]:
            alike = False
            counts[2] += 1
        elif alike and (over[0] != over[1] or row[0][2:] != row[1][2:]):
            alike = False
        counts[0] += begun[0]
        counts[1] += begun[1]
        if all(begun) and row[0][2:] == row[1][2:]:
            alike = True
        before = row
    return Counts(*counts)


tag = st.sampled_from(["O", "O", "B-X", "I-X", "B-Y", "I-Y"])
sentence = st.lists(st.tuples(tag, tag, st.booleans()), min_size=1, max_size=8)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(sentence, min_size=1, max_size=4))
def test_counts_equal_those_of_the_conll_algorithm(rows):
    """Catches entities that reach over the end of a sentence."""
    gold = [[one for one, _, _ in row] for row in rows]
    found = [[one if same else other for one, other, same in row] for row in rows]
    score = score_tags(gold, found, samples=2)
    assert score.entities == scored(gold, found)
    assert Counts(*(sum(part) for part in zip((0, 0, 0), *score.types.values(), strict=True))) == score.entities


@settings(max_examples=50)
@given(st.lists(sentence, min_size=1, max_size=4))
def test_scores_are_those_of_seqeval(rows):
    metrics = pytest.importorskip("seqeval.metrics")
    gold = [[one for one, _, _ in row] for row in rows]
    found = [[one if same else other for one, other, same in row] for row in rows]
    score = score_tags(gold, found, samples=2).entities
    for name in ("precision", "recall", "f1"):
        assert getattr(score, name) == pytest.approx(getattr(metrics, f"{name}_score")(gold, found, zero_division=0))


def test_scores_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-PER"]]
    found = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "B-PER"]]
    score = score_tags(gold, found)
    assert (score.sentences, score.words, score.accuracy) == (2, 6, 4 / 6)
    assert score.entities == Counts(gold=3, found=4, correct=2)
    assert score.types == {"LOC": Counts(1, 1, 0), "PER": Counts(2, 3, 2)}
    assert score.table() == [
        ("", 2 / 4, 2 / 3, pytest.approx(4 / 7), 4),
        ("LOC", 0, 0, 0, 1),
        ("PER", 2 / 3, 1, 0.8, 3),
    ]


def test_intervals_are_around_the_score_and_narrow_with_sentences():
    """Catches found and there mixed up in F1."""
    gold = [["B-X", "O", "O"], ["O", "O", "B-X"], ["B-X", "I-X", "O"]] * 20
    found = [["B-X", "O", "O"], ["O", "B-X", "B-X"], ["B-X", "O", "O"]] * 20
    widths = []
    for size in (12, 60):
        score = score_tags(gold[:size], found[:size], seed=1)
        values = {"accuracy": score.accuracy, **{name: getattr(score.entities, name) for name in ("precision", "f1")}}
        for name, value in values.items():
            low, high = score.intervals[name]
            assert low < value < high
        widths.append(score.intervals["f1"][1] - score.intervals["f1"][0])
    assert widths[1] < widths[0] / 2


def test_without_entities_there_is_accuracy_alone():
    score = score_tags([["NOUN", "VERB"]], [["NOUN", "NOUN"]])
    assert (score.accuracy, score.entities.f1, list(score.intervals)) == (0.5, 0.0, ["accuracy"])
    assert score_tags([], []).accuracy == 0.0


def test_rows_that_do_not_match_are_rejected():
    with pytest.raises(DataError, match="sentence 2 has 1 words, but 2 predicted tags"):
        score_tags([["O"], ["O"]], [["O"], ["O", "O"]])
    with pytest.raises(DataError, match="the numbers of tagged"):
        score_tags([["O"], ["O"]], [["O"]])


def test_f1_of_sums_equals_f1_of_counts():
    """Catches: what is there taken for what was found."""
    counts = [Counts(4, 2, 1), Counts(2, 5, 2), Counts(3, 0, 0), Counts()]
    assert entity_f1(np.array(counts, dtype=float)).tolist() == pytest.approx([count.f1 for count in counts])
