"""Names of models: what stands behind `transformer` in each task, and where names that others use lead."""

import pytest

from elman.errors import ConfigError
from elman.pipeline import read_recipe
from elman.pipeline.tasks import TASKS


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_a_transformer(task: str) -> None:
    """Layers that look around and layers that do not, in turn. Catches: attention alone, which sees no order."""
    model = read_recipe({"task": task, "data": {"train": "x.tsv"}, "model": "transformer"}).model
    for stack in (model.encoder, model.decoder) if task == "translate" else (model,):
        layers = [next(iter(entry)) for entry in stack.pattern if "convolution" not in entry]
        assert layers[0].endswith("attention")
        assert layers[-1] == "feedforward"
        placed = any(settings.get("positions") == "rotary" for entry in stack.pattern for settings in entry.values())
        assert placed or stack.positions != "none"
        assert task == "tag" or (stack.residual, stack.norm) == (True, "pre")


def test_a_transformer_takes_settings_of_its_attention_and_of_its_stack() -> None:
    given = {"type": "transformer", "num_heads": 2, "hidden_size": 8, "norm": "post"}
    model = read_recipe({"data": {"train": "x.txt"}, "model": given}).model
    assert model.pattern == [{"attention": {"num_heads": 2, "positions": "rotary"}}, {"feedforward": {}}]
    assert (model.hidden_size, model.norm, model.residual) == (8, "post", True)
    learned = {"type": "transformer", "positions": "learned"}
    model = read_recipe({"data": {"train": "x.txt"}, "model": learned}).model
    assert (model.pattern[0], model.positions) == ({"attention": {}}, "learned")
    own = {"type": "transformer", "pattern": ["attention", "swiglu"]}
    model = read_recipe({"data": {"train": "x.txt"}, "model": own}).model
    assert [list(entry) for entry in model.pattern] == [["attention"], ["swiglu"]]


@pytest.mark.parametrize(("name", "meant"), [("GPT", "transformer"), ("cnn", "convolution"), ("LSTM", "lstm")])
def test_names_that_others_use_lead_to_ours(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown model '{name}' .did you mean '{meant}'"):
        read_recipe({"data": {"train": "x.txt"}, "model": name})


@pytest.mark.parametrize(("key", "meant"), [("forget_bia", "forget_bias"), ("num_layer", "num_layers")])
def test_a_misspelt_setting_leads_to_that_of_the_layer_or_of_the_stack(key: str, meant: str) -> None:
    """Catches: only those of the stack."""
    with pytest.raises(ConfigError, match=f"unknown key '{key}' in section 'model' .did you mean '{meant}'"):
        read_recipe({"data": {"train": "x.txt"}, "model": {"type": "lstm", key: 3}})
