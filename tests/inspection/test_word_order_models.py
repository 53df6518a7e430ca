"""Word order: test data is held out, and only the recurrent model is order sensitive."""

import json

import pytest

from elman.cli.main import main
from elman.corpus.synthetic.word_order import word_order
from elman.inspection.labs.word_order import PAIRS, PHRASES, phrases


def test_held_out_phrases_are_not_in_the_training_data() -> None:
    """Catches them in the training data."""
    trained = {sentence.text: sentence.labels for sentence in phrases()}
    assert len(trained) == 2 * (8 + 8 * 7) - len(PHRASES)
    assert not trained.keys() & PHRASES.keys()
    assert trained["not great"] == trained["bad , not dull"] == ("negative",)
    assert trained["not bad"] == trained["great , not good"] == ("positive",)


def test_test_sentences_are_not_in_the_training_data() -> None:
    train, test = ({sentence.text for sentence in word_order(split, pairs)} for split, pairs in PAIRS.items())
    assert len(test) == 400
    assert not train & test


@pytest.mark.slow
def test_only_the_recurrent_model_distinguishes_word_orders(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches mean pooling in both."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["inspect", "word-order", "--json"])
    recurrent, mean = json.loads(capsys.readouterr().out)
    assert recurrent["accuracy"] >= 0.99
    assert recurrent["pairs"] >= 0.98
    assert (mean["accuracy"], mean["pairs"]) == (0.5, 0)
    for phrase, label in PHRASES.items():
        assert (recurrent["phrases"][phrase] > 0.5) == (label == "positive")
    with pytest.raises(SystemExit):
        main(["inspect", "word-order", "--seed", "2"])
    shown = capsys.readouterr().out
    assert "50.0%" in shown
    assert "good , not great" in shown
    assert max(map(len, shown.splitlines())) <= 80
