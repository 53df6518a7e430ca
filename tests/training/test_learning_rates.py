"""Default learning rates and warm-ups."""

import pytest

from elman.cells import CELLS
from elman.models import LanguageModel, StackConfig
from elman.training import Trainer, TrainingConfig
from elman.training.learning_rates import suggested_rate_notes, with_suggested_rate

TRANSFORMER = {"pattern": ["attention", "feedforward"], "residual": True, "norm": "pre"}


def model(**settings: object) -> LanguageModel:
    return LanguageModel(StackConfig.make({"hidden_size": 16, **settings}), 5)


@pytest.mark.parametrize(
    ("settings", "rate", "warmup"),
    [
        ({"pattern": ["lstm"], "hidden_size": 512}, 2e-3, 0),
        ({"pattern": ["lstm"], "hidden_size": 1024}, 1e-3, 0),
        ({"pattern": ["gru"], "hidden_size": 256}, 2e-3, 0),
        ({"pattern": ["gru"], "hidden_size": 512}, 1e-3, 0),
        ({**TRANSFORMER, "hidden_size": 32}, 2e-3, 100),
        ({**TRANSFORMER, "hidden_size": 256}, 5e-4, 100),
        ({**TRANSFORMER, "pattern": ["gru", "attention"], "hidden_size": 512}, 2.5e-4, 100),
        ({**TRANSFORMER, "pattern": ["attention", "gru"], "hidden_size": 512}, 2.5e-4, 100),
        ({"pattern": ["mamba", "window"], "hidden_size": 16}, 2e-3, 0),
    ],
)
def test_lowest_rate_of_all_parts_is_used(settings: dict[str, object], rate: float, warmup: int) -> None:
    """Catches: the rate of the first part; the warm-up of the last."""
    found = with_suggested_rate(TrainingConfig(), model(**settings), 5000)
    assert (found.learning_rate, found.warmup_steps) == (rate, warmup)


def test_given_rate_and_warm_up_are_kept() -> None:
    """Catches: a warm-up of 0 that was taken for none given."""
    asked = TrainingConfig(learning_rate=0.01, warmup_steps=0)
    assert with_suggested_rate(asked, model(**TRANSFORMER), 5000) == asked
    assert suggested_rate_notes(asked, asked) == []


def test_a_short_training_warms_up_for_a_tenth() -> None:
    assert with_suggested_rate(TrainingConfig(), model(**TRANSFORMER), 30).warmup_steps == 3


@pytest.mark.parametrize(
    ("settings", "rate"),
    [
        ({"pattern": ["lstm"], "hidden_size": 64}, 1e-2),
        ({"pattern": ["lstm"], "hidden_size": 256}, 4e-3),
        ({"pattern": ["rnn", "gru"], "hidden_size": 64}, 8e-3),
        ({"pattern": ["gru", "window"], "hidden_size": 64}, 2e-3),
        ({"pattern": ["mamba"], "hidden_size": 64}, 2e-3),
        ({**TRANSFORMER, "hidden_size": 16}, 2e-3),
    ],
)
def test_a_short_training_of_a_recurrent_model_takes_larger_steps(settings: dict[str, object], rate: float) -> None:
    assert with_suggested_rate(TrainingConfig(), model(**settings), 999).learning_rate == rate
    assert with_suggested_rate(TrainingConfig(), model(**settings), 1000).learning_rate == min(rate, 2e-3)


def test_sgd_keeps_its_default_rate() -> None:
    found = with_suggested_rate(TrainingConfig(optimizer="sgd"), model(**{**TRANSFORMER, "hidden_size": 256}), 5000)
    assert (found.learning_rate, found.warmup_steps) == (2e-3, 0)


def test_chosen_rate_is_reported() -> None:
    asked = TrainingConfig()
    taken = with_suggested_rate(asked, model(**{**TRANSFORMER, "hidden_size": 256}), 5000)
    (note,) = suggested_rate_notes(asked, taken)
    assert note == "learning rate 0.0005 after 100 steps of warm-up, as suits the model"
    assert suggested_rate_notes(asked, with_suggested_rate(asked, model(), 5000)) == []
    (note,) = suggested_rate_notes(TrainingConfig(warmup_steps=7), taken)
    assert "learning rate 0.0005, as suits" in note


def test_trainer_uses_the_chosen_rate() -> None:
    """Catches: a trainer that uses the unresolved configuration."""

    class Batches:
        def length_of(self, epoch: int) -> int:
            return 200

    trainer = Trainer(model(**{**TRANSFORMER, "hidden_size": 256}), Batches(), TrainingConfig(max_epochs=2))
    assert (trainer.config.learning_rate, trainer.config.warmup_steps) == (5e-4, 40)
    assert trainer.update.config is trainer.config


def test_every_cell_has_a_default_rate() -> None:
    assert all(CELLS[name].suggested_rate.rate > 0 for name in CELLS)
