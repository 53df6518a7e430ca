"""The choice of least risk against its definition, and where it must differ from the most probable."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.generation.minimum_bayes_risk import default_similarity, edit_similarity, minimum_bayes_risk

texts = st.lists(st.text("ab ", max_size=6), min_size=1, max_size=6)


@given(texts=texts, data=st.data())
def test_no_candidate_has_a_greater_expected_similarity(texts: list[str], data: st.DataObject) -> None:
    """Catches: chances not taken from logarithms; similarity to itself left out."""
    logs = data.draw(st.lists(st.floats(-30, 0), min_size=len(texts), max_size=len(texts)))
    chances = [math.exp(log) / sum(map(math.exp, logs)) for log in logs]
    expected = [sum(c * edit_similarity(a, b) for b, c in zip(texts, chances, strict=True)) for a in texts]
    assert expected[minimum_bayes_risk(texts, logs, edit_similarity)] == pytest.approx(max(expected))


def test_many_that_agree_outweigh_one_that_is_more_probable() -> None:
    candidates = ["a dog", "the cat sat down", "the cat sat", "the cat sits"]
    logs = [math.log(p) for p in (0.3, 0.2, 0.25, 0.25)]
    assert candidates[minimum_bayes_risk(candidates, logs, edit_similarity)].startswith("the cat")
    assert candidates[minimum_bayes_risk(candidates, logs)].startswith("the cat")
    assert minimum_bayes_risk(candidates, [0.0, -50.0, -50.0, -50.0]) == 0


def test_among_equals_the_first_is_taken() -> None:
    assert minimum_bayes_risk(["x", "x", "x"], [-2.0, -2.5, -2.0]) == 0


def test_candidates_that_are_nearly_impossible_are_compared_too() -> None:
    """Catches: chances that were all rounded to zero."""
    assert minimum_bayes_risk(["zzz", "abc", "abd"], [-2000.0, -2000.0, -2000.0], edit_similarity) == 1


@given(a=st.text("abc", max_size=6), b=st.text("abc", max_size=6))
def test_similarity_by_edits_is_symmetric_between_0_and_1_and_1_for_equals_only(a: str, b: str) -> None:
    assert 0 <= edit_similarity(a, b) == edit_similarity(b, a) <= 1
    assert (edit_similarity(a, b) == 1) == (a == b)


def test_without_sacrebleu_edits_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    default_similarity.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "sacrebleu.metrics", None)
        assert default_similarity() is edit_similarity
    default_similarity.cache_clear()


def test_with_sacrebleu_its_chrf_is_taken() -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    default_similarity.cache_clear()
    expected = sacrebleu.sentence_chrf("the cat sat", ["a cat sat"]).score / 100
    assert default_similarity()("the cat sat", "a cat sat") == pytest.approx(expected)
