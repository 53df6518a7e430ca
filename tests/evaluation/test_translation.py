"""Translation metrics: edit distance by definition, micro-averaged rates, and scores of sacrebleu."""

import sys
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.errors import DataError, MissingExtra
from elman.evaluation.translation import edit_distance, paired_bleu, sacrebleu_scores, score_translations, why_no_bleu

WRITTEN = ["the cat sat on the mat", "a dog barks loudly", "nothing at all", "it rains"]
REFERENCES = ["the cat sat on a mat", "a dog barks loudly", "something else", "it is raining"]
words = st.text("abc", max_size=7)


@given(words, words)
def test_edit_distance_equals_its_recursive_definition(given: str, wanted: str) -> None:
    """Catches: no insertions; a replacement for two."""

    @cache
    def distance(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        replaced = distance(i - 1, j - 1) + (given[i - 1] != wanted[j - 1])
        return min(replaced, distance(i - 1, j) + 1, distance(i, j - 1) + 1)

    assert edit_distance(given, wanted) == distance(len(given), len(wanted))
    assert edit_distance(given, wanted) == edit_distance(wanted, given)


def test_error_rates_are_micro_averaged() -> None:
    """Catches: divided by what was written; the mean of the rows' rates."""
    found = score_translations(["a b", "x"], ["a c d e", "x"], bleu=False)
    assert found["exact_match"].value == 0.5
    assert found["word_error_rate"].value == 3 / 5
    assert found["character_error_rate"].value == 5 / 8
    for name, measure in score_translations(["a b", "x"] * 5, ["a c d e", "x"] * 5, bleu=False).items():
        assert measure.value == found[name].value
        assert measure.interval[0] <= measure.value <= measure.interval[1]


def test_perfect_outputs_have_perfect_scores() -> None:
    found = score_translations(REFERENCES, REFERENCES, bleu=False)
    assert [measure.value for measure in found.values()] == [1, 0, 0]
    low, high = found["exact_match"].interval
    assert low < high == 1


def test_unequal_numbers_and_empty_references_are_rejected() -> None:
    with pytest.raises(DataError, match="1 sequences to evaluate against 2"):
        score_translations(["a"], ["a", "b"])
    with pytest.raises(DataError, match="all references are empty"):
        score_translations(["a"], [""], bleu=False)


def test_bleu_and_chrf_are_sacrebleus_with_their_signatures() -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    found = sacrebleu_scores(WRITTEN, REFERENCES, samples=50)
    assert found["bleu"].value == pytest.approx(sacrebleu.corpus_bleu(WRITTEN, [REFERENCES]).score)
    assert found["chrf"].value == pytest.approx(sacrebleu.corpus_chrf(WRITTEN, [REFERENCES]).score)
    assert "tok:13a" in found["bleu"].signature
    assert "version:" in found["chrf"].signature
    assert found["bleu"].interval is None  # of four pairs
    assert score_translations(WRITTEN, REFERENCES, samples=50)["bleu"] == found["bleu"]


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [10, 40])
def test_bleu_intervals_of_few_pairs_are_those_of_sacrebleu_widened(pairs: int) -> None:
    sacrebleu, stats = pytest.importorskip("sacrebleu.metrics"), pytest.importorskip("scipy.stats")
    written, references = [WRITTEN[i % 4] for i in range(pairs)], [REFERENCES[i % 4] for i in range(pairs)]
    low, high = sacrebleu_scores(written, references, samples=200)["bleu"].interval
    theirs = sacrebleu.BLEU().corpus_score(written, [references], n_bootstrap=200)
    wider = stats.t.ppf(0.975, pairs - 1) / 1.96 * (pairs / (pairs - 1)) ** 0.5
    assert (high + low, high - low) == pytest.approx((2 * theirs._mean, 2 * theirs._ci * wider), rel=1e-3)


def test_without_sacrebleu_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(MissingExtra, match=r"elman\[metrics\]"):
        score_translations(WRITTEN, REFERENCES)
    assert "elman[metrics]" in why_no_bleu(REFERENCES)


def test_bleu_needs_one_reference_with_four_words() -> None:
    """Catches: of all references."""
    assert why_no_bleu(["a b c", "d"]) == "no target has 4 words"
    assert not why_no_bleu(["a", "a b c d"])


def test_bleu_interval_exists_for_nearly_zero_scores() -> None:
    """sacrebleu's own bootstrap stops with a TypeError where some draws share nothing with their references."""
    references = [f"word{i} other{i} third{i} fourth{i} fifth{i}" for i in range(40)]
    written = ["nothing at all of it"] * 39 + [references[-1]]
    found = score_translations(written, references, samples=50)
    low, high = found["bleu"].interval
    assert 0 <= low <= high <= 100


def test_tokenized_text_gives_no_sacrebleu_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A hundred of them; sacrebleu's own class warns each time, and gives the same."""
    metrics = pytest.importorskip("sacrebleu.metrics")
    texts = [f"a text of {number} words ." for number in range(120)]
    others = [text.replace("words", "lines") for text in texts]
    found = sacrebleu_scores(others, texts, samples=2)["bleu"]
    paired_bleu(others, texts, texts, samples=10)
    assert not [record for record in caplog.records if "okeniz" in record.getMessage()]
    plain = metrics.BLEU()
    assert found.value == plain.corpus_score(others, [texts]).score
    assert [record for record in caplog.records if "okeniz" in record.getMessage()]
