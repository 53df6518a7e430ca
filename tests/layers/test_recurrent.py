"""Recurrent layers: registered by name, stacked, with dropout in forward only."""

import pytest
import torch

from elman.cells import CELLS
from elman.errors import ConfigError, UnknownName
from elman.layers import LAYERS, Recurrent
from elman.layers.recurrent import RecurrentStack


def build(name: str, input_size: int = 3, **settings):
    torch.manual_seed(0)
    return LAYERS[name](LAYERS[name].Config.make(settings), input_size)


def test_every_cell_is_registered_as_a_layer() -> None:
    for name in CELLS:
        assert issubclass(LAYERS[name], Recurrent)
        assert LAYERS[name].Config is CELLS[name].Config
        assert LAYERS.describe()[name] == CELLS.describe()[name] != ""


@pytest.mark.parametrize("cell", ["gru", {"gru": {}}, {"gru": {"reset": "before"}}, {"type": "gru", "reset": "before"}])
def test_a_cell_is_given_by_name_or_with_settings(cell) -> None:
    layer = build("recurrent", cell=cell, hidden_size=7, num_layers=2)
    assert [part.name for part in layer.layers] == ["gru", "gru"]
    assert layer.layers[0].cell.resets_after == ("before" not in str(cell))
    assert (layer.input_size, layer.output_size, layer.layers[1].input_size) == (3, 7, 7)


def test_unknown_cell_is_rejected_with_a_remedy() -> None:
    with pytest.raises(UnknownName, match="did you mean 'lstm'"):
        build("recurrent", cell="lstn")
    with pytest.raises(ConfigError, match=r"'rest' in section 'cell\.gru' \(did you mean 'reset'"):
        build("recurrent", cell={"gru": {"rest": "before"}})
    with pytest.raises(ConfigError, match="one name with its settings"):
        build("recurrent", cell={"gru": {}, "lstm": {}})


def test_dropout_is_between_layers_and_in_training_only() -> None:
    x = torch.randn(2, 6, 3)
    one, two = build("recurrent", dropout=0.5), build("recurrent", num_layers=2, dropout=0.5)
    assert torch.equal(one(x)[0], one(x)[0]), "nothing is in between"
    assert not torch.equal(two(x)[0], two(x)[0])
    two.eval()
    assert torch.equal(two(x)[0], two(x)[0])


def test_weight_dropout_is_sampled_once_per_forward_and_never_in_step() -> None:
    """Catches: a new mask at each step."""
    layer = build("lstm", hidden_size=8, weight_dropout=0.5)
    whole = torch.randn(2, 6, 3)
    torch.manual_seed(1)
    first = layer(whole)[0]
    torch.manual_seed(1)
    assert torch.equal(layer(whole)[0], first)
    assert not torch.equal(layer(whole)[0], first)
    state = layer(whole)[1]
    assert torch.equal(layer.step(whole[:, 0], state)[0], layer.step(whole[:, 0], state)[0])
    torch.manual_seed(1)
    masked = torch.nn.functional.dropout(layer.cell.from_past.weight, 0.5)
    twin = build("lstm", hidden_size=8)
    twin.cell.from_past.weight.data = masked.data
    torch.testing.assert_close(twin(whole)[0], first)


def test_explain_names_the_implementation() -> None:
    assert build("lstm").explain(4, 16) == "vendor: oneDNN LSTM"
    assert build("recurrent", cell="gru", num_layers=2).explain(4, 2).count("below 4 steps") == 2


def test_stack_settings_round_trip_through_yaml() -> None:
    config = RecurrentStack.Config.make({"cell": {"gru": {"reset": "before"}}, "num_layers": 2})
    assert RecurrentStack.Config.make(config.plain()) == config
