"""The outcome in words and numbers says what the verdict says, and no more."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.comparison.config import Race, is_race, of_recipe
from elman.comparison.race_figures import CASES, merge_steps
from elman.comparison.ranking import Scores, rank
from elman.comparison.results import RaceResults
from elman.comparison.user_modules import read_modules
from elman.comparison.verdict import chance, headline, join, short, spread, staircase
from elman.errors import ConfigError
from elman.pipeline.tasks import Measure

LOSS = Measure("loss", True, "nats per token")


def outcome(exact=(), steps=None, **values):
    """A race that ended so."""
    scores = {name: Scores(list(own), exact=name in exact) for name, own in values.items()}
    verdict = rank(scores, True)
    rows = []
    for name in verdict.order:
        against = verdict.comparisons.get(name)
        rows.append(
            {
                "entrant": name, "place": 1, "score": scores[name].mean, "interval": scores[name].interval,
                "exact": name in exact, "seeds": len(scores[name].values), "training_seconds": scores[name].mean,
                "against_best": None if against is None else vars(against), "staircase": (steps or {}).get(name),
            }
        )  # fmt: skip
    return RaceResults(LOSS, "test", rows, verdict)


def test_a_winner_is_called_one_with_its_interval_and_chances():
    told = headline(outcome(a=[1.0, 1.01, 1.02], b=[2.0, 2.01, 2.02]))
    assert told.startswith("Use a: it wins with 1.0100 nats per token (1.0000 to 1.0200 over its seeds)")
    assert "b with 2.0100" in told
    assert "by seed" in told


def test_those_who_cannot_be_told_apart_are_named_together():
    """Catches the first of the tied called the winner."""
    told = headline(outcome(a=[1.0, 1.2, 1.1], b=[1.05, 1.25, 1.15], c=[9.0, 9.1, 9.2]))
    assert told.startswith(
        "No single winner: a and b do not differ significantly (a against b: their intervals overlap"
    )
    assert "c is significantly worse than a" in told
    assert "wins" not in told


def test_where_only_seeds_are_wanting_more_are_asked_for():
    told = headline(outcome(exact=["b"], a=[1.0, 1.2, 1.1], b=[1.3]))
    assert "b (1.3000) may be worse, but 3 seeds are too few to decide: --resume --seeds 6 adds more." in told
    assert "may be worse" not in headline(outcome(a=[1.0, 1.2, 1.1], b=[1.05, 1.25, 1.15]))


def test_spreads_are_in_the_unit_of_the_score():
    found = outcome(a=[0.8, 0.9], b=[0.5, 0.6])
    row = {"spread": 0.0512, "exact": False}
    assert spread(found, row) == "0.051"
    assert (
        spread(found._replace(measure=Measure("accuracy", False, "of the labels right", percent=True)), row) == "5.1%"
    )
    assert spread(found, {"spread": 0.0, "exact": True}) == ""


def test_one_seed_is_asked_for_more():
    told = headline(outcome(a=[1.0], b=[2.0]))
    assert told.startswith("No single winner")
    assert "one seed has no spread" in told
    assert "--seeds 3" in told


def test_the_staircase_tells_who_guesses_and_who_holds():
    far = [{"value": 0, "accuracy": 1.0, "words": 50}, {"value": 8, "accuracy": 0.5, "words": 50}]
    near = [{"value": 0, "accuracy": 1.0, "words": 50}, {"value": 8, "accuracy": 0.97, "words": 50}]
    told = staircase(outcome(steps={"good": near, "short": far}, good=[1.0, 1.1], short=[2.0, 2.1]))
    assert "good still finds the right form (97% right)" in told
    assert "short guesses (50% right)" in told
    assert staircase(outcome(good=[1.0, 1.1], short=[2.0, 2.1])) == ""


steps = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 100)), min_size=1, max_size=25).map(
    lambda pairs: [
        {"value": place, "accuracy": share, "least": share, "most": share, "words": words}
        for place, (share, words) in enumerate(pairs)
    ]
)


@given(steps)
def test_merged_distances_keep_all_words_and_have_enough_each(given_steps):
    """Catches the last few thrown away."""
    found = merge_steps(given_steps)
    if found:
        assert sum(one["words"] for one in found) == sum(one["words"] for one in given_steps)
        assert all(one["words"] >= CASES for one in found)
        right = sum(one["accuracy"] * one["words"] for one in found)
        assert right == pytest.approx(sum(one["accuracy"] * one["words"] for one in given_steps))
    else:
        assert sum(one["words"] for one in given_steps) < 2 * CASES


def test_numbers_are_short():
    assert [short(value) for value in (None, 12, 12_345, 4.56e9)] == ["–", "12", "12.3k", "4.56G"]
    assert chance(0.0) == "p < 0.001"
    assert chance(0.0321) == "p = 0.032"
    assert join(["a"]) == "a"
    assert join(["a", "b", "c"]) == "a, b and c"


def test_a_race_is_told_from_a_recipe(tmp_path):
    (tmp_path / "race.yaml").write_text("entrants: [lstm]\n")
    (tmp_path / "recipe.yaml").write_text("model: lstm\nseed: 1\n")
    assert is_race(tmp_path / "race.yaml")
    assert not is_race(tmp_path / "recipe.yaml")
    with pytest.raises(ConfigError, match="did you mean 'seeds'"):
        Race.make({"seed": 3})


def test_the_model_of_a_recipe_does_not_become_everybodys():
    """Catches the whole recipe taken over: a pattern of lstm made lstms of all."""
    race = Race.make(of_recipe({"model": {"pattern": ["lstm"]}, "seed": 1, "parameters": "50k", "goals": []}))
    assert race.recipe == {"seed": 1}
    assert race.parameters == "50k"


def test_a_file_that_is_no_module_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no file of Python"):
        read_modules([tmp_path / "missing.py"])
    (tmp_path / "broken_module.py").write_text("import nonsense_that_is_not_there")
    with pytest.raises(ConfigError, match="nonsense_that_is_not_there"):
        read_modules([tmp_path / "broken_module.py"])


def test_nobody_reached_the_end():
    empty = SimpleNamespace(order=[], winner=None, tied=[], comparisons={})
    assert headline(RaceResults(LOSS, "test", [], empty)) == "No result: all runs failed."
