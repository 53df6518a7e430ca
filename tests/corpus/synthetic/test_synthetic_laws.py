"""Laws of every synthetic language, with default and other settings."""

import math
import re
from collections import Counter, defaultdict
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.corpus.synthetic import END, LANGUAGES, Language, make_language
from elman.errors import ConfigError, DataError, ElmanError, UnknownName

DOCUMENTS = 4000
OTHERS = [
    {"type": "agreement", "max_phrases": 2, "phrase_ratio": 0.5, "attractors": 0.9, "nesting": 1.0},
    {"type": "agreement", "max_phrases": 0, "words_per_class": 3},
    {"type": "brackets", "pairs": 1, "max_depth": 1},
    {"type": "brackets", "pairs": 4, "max_depth": 40, "opening": 0.4},
    {"type": "markov", "order": 1, "symbols": 3, "concentration": 1.0, "mean_length": 5},
    {"type": "markov", "order": 3, "symbols": 4, "concentration": 0.05},
]
VARIANTS = [*({"type": name} for name in LANGUAGES), *OTHERS]


def name_of(variant: dict) -> str:
    return "-".join(str(value) for value in variant.values())


@pytest.fixture(scope="module", params=VARIANTS, ids=name_of)
def language(request: pytest.FixtureRequest) -> Language:
    return make_language({**request.param, "train_documents": DOCUMENTS, "valid_documents": 50, "test_documents": 50})


@pytest.fixture(scope="module")
def documents(language: Language) -> list[list[str]]:
    return [document.text.split(" ") for document in language.split("train")]


def test_every_registered_language_is_tested():
    assert {variant["type"] for variant in VARIANTS} == set(LANGUAGES) >= {"agreement", "markov", "brackets"}


def test_distributions_sum_to_one_and_use_the_vocabulary(language, documents):
    for words in documents[:50]:
        for length in range(len(words) + 1):
            distribution = language.distribution(words[:length])
            assert math.fsum(distribution.values()) == pytest.approx(1, abs=1e-12)
            assert min(distribution.values()) > 0
            assert set(distribution) <= {*language.vocabulary, END}


def test_log_probs_are_those_of_the_distribution_step_by_step(language, documents):
    for words in documents[:50]:
        steps = [math.log(language.distribution(words[:place])[word]) for place, word in enumerate([*words, END])]
        assert language.log_probs(words) == pytest.approx(steps, abs=1e-12)


def test_every_sampled_document_is_possible(language, documents):
    assert len(documents) == DOCUMENTS
    for words in documents:
        assert "" not in words
        assert all(math.isfinite(value) and value <= 0 for value in language.log_probs(words))


def test_mean_loss_of_the_true_distribution_is_the_entropy(language, documents):
    nats = np.array([-sum(language.log_probs(words)) for words in documents])
    tokens = np.array([len(words) + 1 for words in documents])
    assert_zero_mean(nats - language.entropy * tokens)


def test_documents_are_as_long_as_expected(language, documents):
    assert_zero_mean(np.array([len(words) + 1 for words in documents]) - language.expected_tokens)
    assert_zero_mean(np.array([document.size for document in language.split("train")]) - language.expected_bytes)


def assert_zero_mean(values: np.ndarray) -> None:
    assert abs(values.mean()) <= 4 * values.std(ddof=1) / math.sqrt(len(values)) + 1e-9


def test_the_next_words_of_common_prefixes_are_as_frequent_as_the_distribution_says(language, documents):
    followers: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for words in documents:
        for place, word in enumerate([*words, END][:4]):
            followers[tuple(words[:place])][word] += 1
    common = [prefix for prefix, counts in followers.items() if counts.total() >= 300]
    assert () in common
    for prefix in common:
        expected = {word: p * followers[prefix].total() for word, p in language.distribution(prefix).items()}
        frequent = [word for word in expected if expected[word] >= 5]
        square = sum((followers[prefix][word] - expected[word]) ** 2 / expected[word] for word in frequent)
        assert square <= len(frequent) + 5 * math.sqrt(2 * len(frequent)), prefix


def test_vocabulary_has_exactly_the_words_of_documents(language, documents):
    assert language.vocabulary == sorted(set(language.vocabulary))
    used = {word for words in documents for word in words}
    assert used <= set(language.vocabulary)
    if language.name != "markov":  # its drawn tables make some symbols as rare as can be
        assert used == set(language.vocabulary)


def test_marks_name_a_form_that_is_impossible_where_the_right_one_is_possible(language):
    for document in islice(language.split("train"), 1000):
        words = document.text.split(" ")
        for mark in document.marks:
            distribution = language.distribution(words[: mark.word])
            assert distribution[words[mark.word]] > 0
            assert mark.wrong not in distribution
            assert mark.wrong in language.vocabulary
            assert 0 <= mark.attractors <= mark.distance < mark.word


def test_minimal_pairs_are_the_marks(language):
    pairs = list(language.minimal_pairs("valid", limit=20))
    marked = [(document, mark) for document in language.split("valid") for mark in document.marks][:20]
    assert len(pairs) == len(marked)
    for pair, (document, mark) in zip(pairs, marked, strict=True):
        assert " ".join([*pair.prefix, pair.right]) == " ".join(document.text.split(" ")[: mark.word + 1])
        assert (pair.wrong, pair.distance, pair.attractors) == (mark.wrong, mark.distance, mark.attractors)


def test_documents_have_sizes_and_locations(language):
    for line, document in enumerate(language.split("valid"), start=1):
        assert document.size == len((document.text + "\n").encode())
        assert (document.source, document.line) == (f"{language.name}/valid", line)


@pytest.mark.parametrize("name", list(LANGUAGES))
def test_splits_are_deterministic_and_depend_on_the_seed(name):
    def texts(split: str, seed: int) -> list[str]:
        language = make_language({"type": name, "seed": seed, "train_documents": 50, "valid_documents": 50})
        return [document.text for document in islice(language.split(split), 50)]

    samples = [texts(split, seed) for split in ("train", "valid", "test") for seed in (0, 1)]
    assert samples == [texts(split, seed) for split in ("train", "valid", "test") for seed in (0, 1)]
    assert len({tuple(sample) for sample in samples}) == 6


@pytest.mark.parametrize("name", list(LANGUAGES))
def test_longer_splits_extend_shorter_ones(name):
    short, long = ({"type": name, "test_documents": count} for count in (5, 9))
    assert list(make_language(short).split("test")) == list(make_language(long).split("test"))[:5]


TINY = [
    {"type": "agreement", "max_phrases": 0, "words_per_class": 2},
    {"type": "agreement", "max_phrases": 1, "words_per_class": 1, "attractors": 0.3},
    {"type": "brackets", "pairs": 2, "max_depth": 1, "mean_groups": 1.05},
    {"type": "brackets", "pairs": 1, "max_depth": 2, "opening": 0.05, "mean_groups": 1.05},
    {"type": "markov", "order": 2, "symbols": 2, "concentration": 1.0, "mean_length": 1.1},
]


@pytest.mark.parametrize("variant", TINY, ids=name_of)
def test_entropy_equals_enumeration_of_all_documents(variant):
    language = make_language(variant)
    whole = tokens = nats = size = 0.0
    prefixes: list[tuple[tuple[str, ...], float]] = [((), 1.0)]
    while prefixes:
        words, chance = prefixes.pop()
        for word, p in language.distribution(words).items():
            if word == END:
                whole += chance * p
                tokens += chance * p * (len(words) + 1)
                nats -= chance * p * math.log(chance * p)
                size += chance * p * (len(" ".join(words).encode()) + 1)
            elif chance * p > 1e-15:
                prefixes.append(((*words, word), chance * p))
    assert whole == pytest.approx(1, abs=1e-11)
    assert language.expected_tokens == pytest.approx(tokens, abs=1e-9)
    assert language.expected_bytes == pytest.approx(size, abs=1e-9)
    assert language.entropy == pytest.approx(nats / tokens, abs=1e-9)
    assert language.bits_per_byte == pytest.approx(nats / size / math.log(2), abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(name=st.sampled_from(list(LANGUAGES)), words=st.lists(st.sampled_from(["the", "(", "b", END, "", "cat"])))
def test_arbitrary_words_are_scored_or_rejected_by_name(name, words):
    language = make_language({"type": name})
    for place, word in enumerate(words):
        if word == END or word not in language.distribution(words[:place]):
            with pytest.raises(DataError, match=re.escape(f"{word!r} as word {place + 1} of")):
                language.distribution(words)
            return
    assert sum(language.distribution(words).values()) == pytest.approx(1)


@pytest.mark.parametrize("name", list(LANGUAGES))
def test_impossible_document_ends_are_rejected(name):
    with pytest.raises(DataError, match=r"'<eos>' as word 1 .*possible there"):
        make_language({"type": name}).log_probs([])


def test_nothing_follows_the_end_of_a_document(language, documents):
    for refuse in (language.distribution, language.log_probs):
        with pytest.raises(DataError, match=f"'{END}' as word {len(documents[0]) + 1} "):
            refuse([*documents[0], END])


def test_unknown_settings_are_rejected_with_a_suggestion():
    with pytest.raises(UnknownName, match=r"'agrement' \(did you mean 'agreement'\?\)"):
        make_language({"type": "agrement"})
    with pytest.raises(ConfigError, match=r"'max_phrase' in section 'data.language' \(did you mean 'max_phrases'\?\)"):
        make_language({"type": "agreement", "max_phrase": 3})
    with pytest.raises(ConfigError, match=r"data.language.type: is required; known: agreement, brackets, markov"):
        make_language({"seed": 3})
    with pytest.raises(UnknownName, match="unknown split 'dev'"):
        make_language({"type": "markov"}).split("dev")


@pytest.mark.parametrize(
    "variant",
    [
        {"type": "markov", "order": 8, "symbols": 52},
        {"type": "markov", "mean_length": math.inf},
        {"type": "markov", "seed": -1},
        {"type": "brackets", "opening": 0.95, "max_depth": 50},
        {"type": "brackets", "opening": 1.0},
        {"type": "agreement", "attractors": math.nan},
        {"type": ["agreement"]},
    ],
    ids=name_of,
)
def test_inconsistent_settings_are_rejected(variant):
    with pytest.raises(ElmanError):
        make_language(variant)


@pytest.mark.parametrize("name", list(LANGUAGES))
def test_every_setting_has_a_description(name):
    assert all(field.description for field in LANGUAGES[name].Config.described_fields().values())
