"""Entrants of a race with settings of their own: of the model, or of its training."""

import pytest

from elman.comparison import Race, RaceRun
from elman.comparison.plan import RacePlan, split_settings, vary
from elman.errors import ConfigError


def test_every_combination_is_an_entrant_and_ngrams_run_once():
    settings = {"model.dropout": "0,0.3", "training.optimizer": ["sgd", "adamw"]}
    found = vary({"ngram": {}, "wide": {"type": "lstm"}}, settings)
    assert list(found) == ["ngram", *(f"wide-dropout={d}-optimizer={o}" for d in (0, 0.3) for o in ("sgd", "adamw"))]
    assert found["wide-dropout=0.3-optimizer=sgd"] == (
        "wide",
        {"type": "lstm", "model.dropout": 0.3, "training.optimizer": "sgd"},
    )
    assert list(vary({"a": {}}, {"model.pattern": "[rnn],[gru, lstm]"})) == ["a-pattern=_rnn_", "a-pattern=_gru_lstm_"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"model.dropout": "uniform(0,1)"}, "a race compares a few values, separated by commas; elman sweep searches"),
        ({"data.valid_fraction": "0.1,0.2"}, "all entrants of a race share it; elman sweep varies any setting"),
        ({"training.max_steps": "10,20"}, "training.max_steps: the budget of the race decides it"),
        (
            {"training.optimiser": "sgd,adam"},
            "entrant rnn-optimiser=sgd: unknown key 'optimiser' in section 'training'",
        ),
    ],
)
def test_what_a_race_cannot_vary_is_refused(small, settings, problem, tmp_path):
    with pytest.raises(ConfigError) as caught:
        RacePlan(Race.make(small | {"entrants": ["rnn"], "settings": settings}), tmp_path / "race")
    assert problem in str(caught.value)


def test_settings_of_training_are_apart_from_those_of_the_model():
    own = {"type": "lstm", "model.dropout": 0.1, "hidden_size": 8, "training.batch_size": 4}
    assert split_settings("x", own) == (
        {"type": "lstm", "dropout": 0.1, "hidden_size": 8},
        {"training.batch_size": 4},
    )


@pytest.mark.slow
def test_entrants_keep_their_form_and_have_the_budget_in_their_own_batches(small, tmp_path):
    """A varied family is that of its name: attention has positions. Catches steps counted in batches of others."""
    entrants = {"attention": {}, "rnn": {}, "slow": {"pattern": ["rnn"], "training.learning_rate": 1e-4}}
    small |= {"entrants": entrants, "settings": {"training.batch_size": [4, 8]}, "tokens": 3000}
    plan = RacePlan(Race.make(small), tmp_path / "race")
    found = {one.name: one for one in plan.entrants}
    plain = RacePlan(Race.make(small | {"settings": {}}), tmp_path / "plain")
    assert found["attention-batch_size=8"].recipe.model == plain.entrants[0].recipe.model
    steps = {name: plan.runs(one, None, None)[0].recipe.training.max_steps for name, one in found.items()}
    for family in entrants:
        four, eight = (found[f"{family}-batch_size={n}"] for n in (4, 8))
        assert (four.recipe.training.batch_size, eight.recipe.training.batch_size) == (4, 8)
        units = [steps[one.name] * one.per_step for one in (four, eight)]
        assert units == pytest.approx([3000, 3000], rel=0.1)
    rates = plan.rates(found["slow-batch_size=4"])
    assert min(rates) < 1e-4 < max(rates)
    assert plan.rates(found["rnn-batch_size=4"]) == plan.rates(found["attention-batch_size=8"])


@pytest.mark.slow
def test_a_race_of_one_model_with_two_settings(small, tmp_path):
    small |= {"entrants": ["rnn"], "settings": {"model.dropout": [0.0, 0.5]}, "trials": 1, "seeds": 1}
    running = RaceRun(Race.make(small), tmp_path / "race", workers=2)
    assert [event.kind for event in running.events() if event.kind in ("done", "failed")] == ["done"] * 2
    assert [jobs[0].recipe.model.dropout for jobs in running.jobs.values()] == [0.0, 0.5]
