"""A model with settings is written the same everywhere: lstm:forget_bias=3,hidden_size=64."""

import pytest

from elman.comparison import Race
from elman.comparison.plan import model_settings
from elman.config import name_and_settings, named, with_type
from elman.errors import ConfigError
from elman.inspection.gradient_decay import UntrainedLayer
from elman.layers import LAYERS
from elman.pipeline import read_recipe
from elman.pipeline.sizes import size_overrides
from elman.pipeline.tasks import TASKS

SPEC = "lstm:forget_bias=3,hidden_size=64"


def test_name_and_settings_are_taken_apart():
    assert name_and_settings(SPEC) == ("lstm", {"forget_bias": "3", "hidden_size": "64"})
    assert with_type("stack:pattern=[gru,lstm],attention.window=4") == {
        "type": "stack", "pattern": ["gru", "lstm"], "attention": {"window": 4},
    }  # fmt: skip
    assert with_type({"type": "lstm:forget_bias=3", "forget_bias": 1}) == {"type": "lstm", "forget_bias": 1}
    with pytest.raises(ConfigError, match="lstm:forget_bias=3,hidden_size=32"):
        name_and_settings("lstm:fast")


@pytest.mark.parametrize("task", ["language-model", "classify", "tag"])
def test_a_recipe_takes_them(task):
    data = {"task": task, "data": {"train": "a.txt"}}
    plain = read_recipe({**data, "model": {"type": "lstm", "forget_bias": 3, "hidden_size": 64}})
    assert read_recipe({**data, "model": SPEC}).model == plain.model
    assert read_recipe({**data, "model": "lstm:forget_bias=3"}, {"model.hidden_size": "64"}).model == plain.model
    assert "forget_bias': 3" in str(plain.model.plain())
    assert size_overrides("tiny", SPEC, task) == size_overrides("tiny", "lstm", task)


def test_a_masked_model_with_settings_implies_its_task():
    assert read_recipe({"model": "masked:hidden_size=8", "data": {"train": "a.txt"}}).task == "masked"


def test_a_race_takes_them_beside_others():
    race = Race.make({"entrants": f"gru,{SPEC}, stack:pattern=[gru,rnn] ,attention"})
    assert list(race.entrants) == ["gru", SPEC, "stack:pattern=[gru,rnn]", "attention"]
    task = TASKS["language-model"]
    made = model_settings(task, SPEC, race.entrants[SPEC], {"hidden_size": 8})
    assert made == model_settings(task, "lstm", {"forget_bias": 3, "hidden_size": 64}, {})
    assert (made["pattern"][0]["lstm"]["forget_bias"], made["hidden_size"]) == (3, 64)
    (first, *_) = model_settings(task, "attention:num_heads=2", {}, {})["pattern"]
    assert first["attention"]["num_heads"] == 2
    assert first["attention"]["positions"] == "rotary"  # the rest of a family's customary stack stays
    with pytest.raises(ConfigError, match="entrant lstm:forget_bia=3: unknown key 'forget_bia'"):
        model_settings(task, "lstm:forget_bia=3", {}, {})


def test_layers_and_inspection_take_them():
    name, config = named(LAYERS, SPEC)
    assert (name, config.forget_bias, config.hidden_size) == ("lstm", 3, 64)
    layer = UntrainedLayer.parse(f"{SPEC},scale=0.5,open.update=2")
    assert (layer.layer, layer.settings) == ("lstm", {"forget_bias": 3, "hidden_size": 64})
    assert (layer.scale, layer.opened) == (0.5, {"update": 2.0})
