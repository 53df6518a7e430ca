"""Training loop: reports, stopping, and exact resuming."""

import math
from itertools import count, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elman.training import Trainer, TrainingConfig
from elman.training.early_stopping import EarlyStopping
from elman.training.learning_rates import learning_rate

SETTINGS = {"max_epochs": 3, "log_every": 2, "optimizer": "adamw", "learning_rate": 0.01, "save_every": 1}


def trainer_for(model, batches, validate=None, **settings):
    return Trainer(model, batches, TrainingConfig.make({**SETTINGS, **settings}), validate=validate)


def told(reports):
    return [{**report.plain(), "clock": None} for report in reports if report.kind in ("step", "validation")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"micro_batches": 2},
        {"averaging": "triggered", "averaging_window": 1},
        {"averaging": "moving", "averaging_steps": 2},
    ],
)
@pytest.mark.parametrize("stop_at", [1, 3, 7])
def test_restored_trainer_continues_bit_identically(batches, make_model, settings, stop_at):
    """Dropout, carried states, averages, logs."""
    losses = [3.0, 2.0, 2.5, 2.4, 2.3]

    def build():
        torch.manual_seed(5)
        model = make_model(dropout=0.3, weight_dropout=0.2, embedding_dropout=0.1)
        trainer = trainer_for(model, batches, None, evaluate_every=4, schedule="cosine", warmup_steps=3, **settings)
        trainer.validate = lambda: losses[min(trainer.step // 4 - 1, 4)]
        return trainer

    whole = build()
    expected = told(whole)
    cut = build()
    before = []
    for report in cut:
        before.append(report)
        if report.kind == "save" and report.step == stop_at:
            break
    weights = {name: value.clone() for name, value in cut.model.state_dict().items()}
    tensors, facts = {name: value.clone() for name, value in cut.tensors().items()}, cut.facts()
    resumed = build()
    torch.manual_seed(99)
    resumed.model.load_state_dict(weights)
    assert resumed.restore(tensors, facts)
    assert told(before) + told(resumed) == expected
    for name, value in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value)
    assert all(torch.equal(value, resumed.weights()[name]) for name, value in whole.weights().items())


@pytest.mark.slow
def test_training_learns(batches, make_model):
    reports = told(trainer_for(make_model().float(), batches, max_epochs=30, learning_rate=0.02))
    assert reports[-1]["loss"] < 0.6 * reports[0]["loss"]


def test_training_ends_after_the_planned_steps(batches, make_model):
    trainer = trainer_for(make_model(), batches, max_steps=5)
    *_, last = trainer
    assert (last.kind, trainer.step, last.values["reason"]) == ("end", 5, "the planned steps are done")


def test_early_stopping_keeps_the_best_step(batches, make_model):
    losses = iter([3.0, 2.0, 2.1, 1.999, 2.2])
    settings = {"max_epochs": 50, "evaluate_every": 1, "patience": 2, "tolerance": 0.01}
    trainer = trainer_for(make_model(), batches, lambda: next(losses), **settings)
    reports = [report for report in trainer if report.kind == "validation"]
    assert [report.values["improved"] for report in reports] == [True, True, False, False]
    assert trainer.early_stopping.best == 2.0


def test_stop_request_ends_after_the_step_with_a_checkpoint(batches, make_model):
    trainer = trainer_for(make_model(), batches, save_every=0, log_every=1)
    kinds = []
    for report in trainer:
        kinds.append(report.kind)
        if report.kind == "step":
            trainer.stop("enough")
    assert kinds == ["start", "step", "save", "end"]


def test_plateau_lowers_the_rate_and_starts_averaging():
    settings = {"schedule": "plateau", "plateau_divide": 4, "averaging": "triggered", "averaging_window": 2}
    judge = EarlyStopping(TrainingConfig.make(settings))
    rates = []
    for loss in [3.0, 2.0, 2.5, 1.9, 2.2, 2.1]:
        judge.update(loss)
        rates.append(judge.rate_factor)
    assert rates == [1, 1, 1 / 4, 1 / 4, 1 / 16, 1 / 64]
    assert judge.averaging  # 2.2 beats neither 3.0 nor 2.0, the losses before the last two
    twin = EarlyStopping(judge.config)
    twin.restore(judge.facts())
    assert twin == judge


@given(st.integers(0, 50), st.integers(1, 200), st.sampled_from(["constant", "cosine", "plateau"]))
def test_warm_up_reaches_the_peak_rate_and_never_exceeds_it(warmup, total, schedule):
    config = TrainingConfig.make({"schedule": schedule, "warmup_steps": warmup, "learning_rate": 0.5})
    rates = [learning_rate(config, step, total) for step in range(total + 1)]
    assert max(rates) <= 0.5
    assert all(rate > 0 for rate in rates)
    assert all(b >= a for a, b in pairwise(rates[:warmup]))
    if schedule == "cosine" and total > warmup:
        assert math.isclose(rates[-1], 0.5 * config.final_fraction)


def test_a_stalled_validation_lowers_the_rate_of_the_next_updates(batches, make_model):
    """Catches: a loop that ignores the plateau schedule."""
    trainer = trainer_for(
        make_model(), batches, lambda: 2.0, schedule="plateau", plateau_divide=4, evaluate_every=2, max_steps=8
    )
    rates = [report.values["learning_rate"] for report in trainer if report.kind == "step"]
    assert rates == pytest.approx([0.01, 0.01, 0.01 / 4, 0.01 / 16])


@pytest.mark.slow
def test_averaged_weights_are_saved_once_averaging_started(batches, make_model):
    """Catches: the newest weights."""
    rising = count(2)
    trainer = trainer_for(
        make_model(),
        batches,
        lambda: next(rising),
        averaging="triggered",
        averaging_window=1,
        evaluate_every=2,
        max_steps=8,
    )
    list(trainer)
    kept, mean = trainer.weights(), trainer.update.average.mean
    assert trainer.update.average.count > 1
    for name, value in trainer.model.state_dict().items():
        torch.testing.assert_close(kept[name], mean[name], rtol=0, atol=0)
        assert not torch.equal(kept[name], value)


def test_moving_average_starts_as_a_mean_and_decays_with_its_span(batches, make_model):
    """Catches: a mean of all updates, and one that begins with the first validation."""
    trainer = trainer_for(make_model(), batches, lambda: 2.0, averaging="moving", averaging_steps=3, max_steps=8)
    expected, step = None, 0
    update = trainer.update.optimizer.step

    def watched(*arguments, **options):
        nonlocal expected, step
        update(*arguments, **options)
        weights, step = flat(trainer.model), step + 1
        expected = weights if expected is None else expected + (weights - expected) / min(step, 3)

    trainer.update.optimizer.step = watched
    list(trainer)
    assert step == 8
    kept = torch.cat([trainer.weights()[name].flatten() for name, _ in trainer.model.named_parameters()])
    torch.testing.assert_close(kept, expected)


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
