"""What is tried next, and which trials are stopped: pure functions of the seed and of earlier outcomes."""

import math

import numpy as np
import pytest

from elman.comparison.pruning import Course, milestones
from elman.comparison.search import Outcome, Search, combinations
from elman.comparison.spaces import read_spaces
from elman.comparison.sweep_results import importance
from elman.errors import ConfigError, MissingExtra

WRITTEN = {"rate": "log(1e-4,1e-1)", "drop": "0,0.2,0.4", "layers": [["rnn"], ["gru"]]}


def valid(settings):
    return ""


def swept(kind, count, seed=1, lag=4):
    """The settings of a sweep whose best is rate 1e-2, drop 0."""
    search, done = Search(kind, read_spaces(WRITTEN), seed, valid), []
    for number in range(count):
        known = max(0, number - lag + 1)
        told = [one if place < known else one._replace(score=None) for place, one in enumerate(done)]
        found = search.propose(told)
        score = (math.log10(found["rate"]) + 2) ** 2 + found["drop"]
        done.append(Outcome(found, math.inf if number == 2 else score, 30 if number % 5 == 4 else 0))
    return done


def kinds():
    return ["random", pytest.param("tpe", marks=pytest.mark.slow)]


@pytest.mark.parametrize("kind", kinds())
def test_proposals_are_a_function_of_seed_and_outcomes(kind):
    if kind == "tpe":
        pytest.importorskip("optuna")
    first, again, other = swept(kind, 16), swept(kind, 16), swept(kind, 16, seed=2)
    assert first == again
    assert first != other
    settings = [one.settings for one in first]
    assert all(one not in settings[:place] for place, one in enumerate(settings))


@pytest.mark.slow
def test_tpe_finds_more_than_random_draws():
    pytest.importorskip("optuna")
    means = {
        kind: np.mean([min(one.score for one in swept(kind, 30, seed)) for seed in range(4)])
        for kind in ("random", "tpe")
    }
    assert means["tpe"] < means["random"]


def test_a_grid_is_every_combination_once():
    spaces = read_spaces({"drop": "0,0.2", "layers": "1,2,3"})
    assert combinations(spaces) == 6
    search, tried = Search("grid", spaces, 1, lambda one: "odd" if one == {"drop": 0, "layers": 2} else ""), []
    while (found := search.propose([Outcome(one, 1.0) for one in tried])) is not None:
        tried.append(found)
    assert tried == [{"drop": d, "layers": n} for d in (0, 0.2) for n in (1, 2, 3) if (d, n) != (0, 2)]


def test_a_small_space_is_used_up_and_not_repeated():
    search, tried = Search("random", read_spaces({"drop": "0,1"}), 1, valid), []
    while (found := search.propose([Outcome(one, 1.0) for one in tried])) is not None:
        tried.append(found)
    assert sorted(one["drop"] for one in tried) == [0, 1]


def test_settings_that_cannot_be_built_are_not_proposed_but_a_useless_value_is_an_error():
    """Heads that do not divide any width; catches combinations that fail one by one."""

    def problem(one):
        wide, heads = one.get("width", 10), one.get("heads", 1)
        return f"{wide} does not split into {heads} heads" if wide % heads else ""

    search = Search("random", read_spaces({"width": "12,16", "heads": "3,4"}), 1, problem)
    tried = []
    for _ in range(3):
        tried.append(search.propose([Outcome(one, 1.0) for one in tried]))
    assert not any(map(problem, tried))
    with pytest.raises(ConfigError, match="--set heads: 7 cannot be tried: 10 does not split"):
        Search("random", read_spaces({"width": "12,16", "heads": "3,7"}), 1, problem)


def test_tpe_without_optuna_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(MissingExtra, match=r"elman\[sweep\]"):
        Search("tpe", read_spaces(WRITTEN), 1, valid)


def courses(count, steps=range(100, 1100, 100), complete=True):
    """The nth ends at n / 10, and comes near it step by step."""
    return [Course([(step, n / 10 + 1 - step / 1000) for step in steps], complete) for n in range(count)]


def test_the_median_is_of_complete_trials_that_got_as_far():
    pruned = Course([(100, 9.0)], complete=False)
    marks = dict(milestones("median", [*courses(5), pruned, pruned]))
    assert list(marks) == list(range(100, 1000, 100))  # not the last, where nothing is saved
    assert marks[500] == pytest.approx(0.2 + 0.5)
    assert milestones("median", courses(4)) == []
    assert milestones("none", courses(9)) == []


def test_halving_lets_the_best_third_of_all_pass_a_rung():
    pruned = Course([(100, 0.0), (200, -1.0)], complete=False)
    marks = dict(milestones("halving", [*courses(8), pruned]))
    assert list(marks) == [200, 400]
    assert marks[200] == pytest.approx(0.1 + 0.8)  # the third of nine
    assert marks[400] == pytest.approx(0.2 + 0.6)  # the third of eight: the pruned one never got there


def test_bests_so_far_are_compared_and_scores_that_are_not_finite_ask_for_nothing():
    worse = [Course([(100, 1.0 + n), (200, 5.0), (300, 5.0)], True) for n in range(5)]
    assert dict(milestones("median", worse)) == {100: 3.0, 200: 3.0}
    lost = [Course([(100, math.inf), (200, 1.0)], True) for _ in range(5)]
    assert milestones("median", lost) == []


@pytest.mark.slow
def test_the_median_rule_is_that_of_optuna():
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    dice, steps = np.random.default_rng(1), [10, 20, 30]
    earlier = [np.minimum.accumulate(dice.uniform(size=3)).tolist() for _ in range(6)]
    marks = dict(milestones("median", [Course([*zip(steps, one, strict=True), (40, 0.0)], True) for one in earlier]))
    study = optuna.create_study(pruner=optuna.pruners.MedianPruner(n_startup_trials=5))
    for one in earlier:
        told = study.ask()
        for step, value in zip(steps, one, strict=True):
            told.report(value, step)
        study.tell(told, 0.0)
    for _ in range(20):
        trial = study.ask()
        for step in steps:
            value = dice.uniform()
            trial.report(value, step)
            best = min(trial.storage.get_trial(trial._trial_id).intermediate_values.values())
            assert trial.should_prune() == (best > marks[step])
        study.tell(trial, state=optuna.trial.TrialState.FAIL)


def test_importance_sees_a_valley_and_gives_nothing_to_noise():
    spaces, dice = read_spaces(WRITTEN), np.random.default_rng(1)
    settings = [{key: space.draw(dice) for key, space in spaces.items()} for _ in range(200)]
    scores = [(math.log10(one["rate"]) + 2.5) ** 2 + 0.1 * one["drop"] for one in settings]
    found = importance(spaces, settings, [*scores[:-1], math.inf])
    assert next(iter(found)) == "rate"
    assert found["rate"] > 0.8
    assert found["layers"] < 0.05
    assert importance(spaces, settings[:1], [1.0]) == dict.fromkeys(spaces, 0.0)
