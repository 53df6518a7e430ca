"""Properties of each synthetic language."""

import math
from collections import Counter
from itertools import product

import pytest

from elman.corpus.document import Mark
from elman.corpus.synthetic import make_language
from elman.errors import ConfigError


def marks_by_text(**settings) -> dict[str, tuple[Mark, ...]]:
    return {document.text: document.marks for document in make_language(settings).split("train")}


RELATIVE = (Mark(5, 0, "sees"),)  # the inner verb of "the cat that the cats see"


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("the cat was old", (Mark(2, 0, "were"),)),
        ("the cats that see the cat were old", (Mark(3, 1, "sees"), Mark(6, 4, "was", 1))),
        ("the cat that the cats see sleeps", (*RELATIVE, Mark(6, 4, "sleep", 1))),
        ("the cat that the cats near the cat sees was old", None),
        ("the cat that the cats near the cat see was old", (Mark(8, 3, "sees", 1), Mark(9, 7, "were", 1))),
        ("the cat near the cats that see the cat sees the cats", (Mark(6, 1, "sees"), Mark(9, 7, "see", 1))),
        (
            "the cat that the cats see that sees the cat sleeps",
            (*RELATIVE, Mark(7, 5, "see", 1), Mark(10, 8, "sleep", 1)),
        ),
    ],
)
def test_verbs_agree_with_their_subject_across_attractors(text, marks, small_english):
    assert small_english.get(text) == marks


@pytest.fixture(scope="module")
def small_english() -> dict[str, tuple[Mark, ...]]:
    return marks_by_text(type="agreement", max_phrases=2, words_per_class=1)


@pytest.mark.parametrize("attractors", [0, 1])
def test_attractor_setting_sets_the_number_of_intervening_nouns(attractors):
    language = make_language({"type": "agreement", "attractors": attractors, "nesting": 0, "train_documents": 300})
    for document in language.split("train"):
        words = document.text.split(" ")
        main = max(document.marks, key=lambda mark: mark.word)
        nouns = [word for word in words[: main.word] if word in language.number]
        assert main.attractors == attractors * (len(nouns) - 1)


def test_nested_attractors_differ_from_the_subject_of_their_clause():
    language = make_language({"type": "agreement", "attractors": 1, "nesting": 1, "train_documents": 300})
    pairs = [
        pair for pair in language.minimal_pairs("train") if pair.distance in (3, 4) and "that" in pair.prefix[-7:-4]
    ]
    inner = [pair for pair in pairs if pair.prefix[-pair.distance - 3] == "that"]
    assert inner
    assert all(pair.attractors == 1 for pair in inner)


def test_the_second_word_of_a_class_is_half_as_likely_as_the_first():
    shares = make_language({"type": "agreement"}).distribution([])
    assert shares == pytest.approx({"the": 12 / 25, "my": 6 / 25, "our": 4 / 25, "your": 3 / 25})


@pytest.mark.parametrize(("ratio", "share"), [(1.0, 1 / 4), (2.0, 1 / 15), (0.0, 1.0)])
def test_ratio_sets_the_share_of_adjacent_subjects_and_verbs(ratio, share):
    language = make_language({"type": "agreement", "max_phrases": 3, "phrase_ratio": ratio, "train_documents": 4000})
    bare = Counter(document.marks[-1].distance == 0 for document in language.split("train"))[True] / 4000
    assert bare == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 4000))


def test_subject_number_is_balanced_and_every_verb_is_marked():
    language = make_language({"type": "agreement", "train_documents": 4000})
    plural = 0
    for document in language.split("train"):
        words = document.text.split(" ")
        assert [mark.word for mark in document.marks] == [
            i for i, word in enumerate(words) if word in language.other_form
        ]
        plural += next(language.number[word] for word in words if word in language.number)
    assert plural / 4000 == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(4000))


@pytest.mark.slow
def test_brackets_are_closed_by_their_own_kind():
    marks = marks_by_text(type="brackets", pairs=2, max_depth=3)
    assert marks["( )"] == (Mark(1, 0, "]"),)
    assert marks["[ ( ) ]"] == (Mark(2, 0, "]"), Mark(3, 2, ")", 1))
    assert marks["( ( [ ] ) )"] == (Mark(3, 0, ")"), Mark(4, 2, "]", 1), Mark(5, 4, "]", 1))
    for text in marks:
        while (shorter := text.replace(" ", "").replace("()", "").replace("[]", "")) != text:
            text = shorter  # noqa: PLW2901
        assert text == ""


def test_one_kind_of_brackets_has_no_wrong_form():
    assert not any(marks_by_text(type="brackets", pairs=1, train_documents=50).values())


def test_bracket_depth_reaches_the_limit_exactly():
    language = make_language({"type": "brackets", "max_depth": 3})
    assert set(language.distribution(["(", "["])) == {"]", "(", "[", "{"}
    assert set(language.distribution(["(", "[", "("])) == {")"}


@pytest.mark.parametrize(("groups", "fits"), [(39, True), (41, False)])
def test_bracket_settings_with_too_long_documents_are_rejected(groups, fits):
    settings = {"type": "brackets", "max_depth": 7, "opening": 0.7, "mean_groups": groups / 40 * 17.751}
    if fits:
        assert make_language(settings).expected_tokens == pytest.approx(9750, rel=1e-2)
    else:
        with pytest.raises(ConfigError, match="words on average"):
            make_language(settings)


def test_equivalent_states_may_be_merged(monkeypatch):
    settings = {"type": "brackets", "pairs": 3, "max_depth": 4, "opening": 0.6}
    merged, single = make_language(settings), make_language(settings)
    monkeypatch.setattr(single, "kind", lambda state: state)
    assert (len(merged.states), len(single.states)) == (6, 2 + 3 + 9 + 27 + 81)
    assert merged.entropy == pytest.approx(single.entropy, abs=1e-12)
    assert merged.expected_tokens == pytest.approx(single.expected_tokens, abs=1e-9)
    assert merged.expected_bytes == pytest.approx(single.expected_bytes, abs=1e-9)


def test_a_chain_of_order_two_depends_on_the_last_two_symbols_only():
    language = make_language({"type": "markov", "order": 2, "symbols": 3, "concentration": 1.0})
    rows = {context: language.distribution(context) for length in range(3) for context in product("abc", repeat=length)}
    assert len({tuple(row.items()) for row in rows.values()}) == len(rows) == len(language.states) == 13
    for context in product("abc", repeat=4):
        assert language.distribution(context) == rows[context[-2:]]


def test_the_mean_length_of_a_chain_is_the_setting():
    assert make_language({"type": "markov", "mean_length": 7.5}).expected_tokens == pytest.approx(8.5)


def test_memoryless_chain_has_uniform_entropy_plus_that_of_its_length():
    language = make_language({"type": "markov", "order": 1, "symbols": 6, "concentration": 1000, "mean_length": 2})
    fair = (2 * math.log(6) + 2 * math.log(2)) / 3
    assert language.entropy == pytest.approx(fair, abs=1e-3)
