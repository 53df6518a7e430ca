"""Functions of labs: targets of synthetic tasks, sides of padding, n-gram statistics."""

import numpy as np
import torch

from elman.inspection.labs import agreement_attraction, decoding, padding, recall_distance, selection
from elman.inspection.labs.decoding import Generator


def test_the_target_is_the_number_of_the_first_noun() -> None:
    """Catches the number of the last noun."""
    dice = np.random.default_rng(0)
    phrases, others = dice.integers(0, 7, 50), dice.random((50, 6)) < 0.5
    inputs, targets, asked = agreement_attraction.sentences(dice, phrases, others)
    assert (asked.sum(1) == 1).all()
    assert (inputs[asked] == agreement_attraction.QUESTION).all()
    assert (targets[asked] == inputs[:, 0] % 2).all()
    nouns = inputs[:, 2:-1:2]
    inside = np.arange(6) < phrases[:, None]
    differs = nouns % 2 != inputs[:, :1] % 2
    assert (differs == others)[inside].all()
    assert (nouns[inside] < 2 * agreement_attraction.NOUNS).all()


def test_the_symbol_to_recall_comes_first_and_only_once() -> None:
    task = recall_distance.FirstSymbol(recall_distance.FirstSymbol.Config(distance=9))
    inputs, targets, asked = task.examples("train", 0, 40)
    assert inputs.shape == (40, 10)
    assert (targets[asked] == inputs[:, 0]).all()
    assert (inputs[:, 1:] >= recall_distance.SYMBOLS).all()


def test_copying_from_fixed_positions_has_fixed_positions() -> None:
    even = selection.EvenCopying(selection.EvenCopying.Config.make({"length": 20, "content": 5}))
    inputs, targets, asked = even.examples("train", 0, 30)
    symbols = inputs >= selection.FIRST
    assert (symbols == symbols[0]).all()
    assert symbols[0].sum() == 5
    assert (inputs[symbols] - selection.FIRST == targets[asked]).all()


def test_the_write_size_after_symbols_is_found_at_its_delay() -> None:
    inputs = np.zeros((1, 19), dtype=np.int64)
    inputs[0, [2, 7]] = selection.FIRST
    written = torch.full((1, 19), 0.5)
    written[0, [4, 9]] = 3.0
    assert selection.after_symbols(written, inputs) == 3


def test_padding_is_on_its_side_and_in_the_length_where_unmasked() -> None:
    rows = [[5, 6, 7], [8, 9, 4]]
    for name, scheme in padding.SCHEMES.items():
        values, lengths = padding.padded(torch.tensor(rows), 2, scheme)
        assert values.shape == (2, 5)
        assert lengths.tolist() == ([3, 3] if name == padding.MASKED else [5, 5])
        real = values[:, 2:] if scheme.left else values[:, :3]
        assert real.tolist() == rows


def test_repetition_and_diversity_are_counted_in_ngrams() -> None:
    class Anything(Generator):
        def allowed(self, text: str) -> bool:
            return text != "bad"

    generator = Anything(None, None, None, 2)  # type: ignore[arg-type]
    looped = decoding.statistics_of(generator, ["a b a b a b a b", "bad"])
    assert looped.right == 0.5
    assert looped.repeated == 3 / 5
    assert looped.different == 2 / 5
    assert decoding.statistics_of(generator, ["a b c d e"]).different == 1
