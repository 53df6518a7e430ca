"""Unit timelines and downsampling: recorded values with the gates of their layer, means and sums preserved."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from inspected_texts import classifier, language

from elman.errors import ConfigError
from elman.figures.panels import UnitTimelines
from elman.inspection import downsampling
from elman.inspection.attention import attention_figure
from elman.inspection.trace import trace
from elman.inspection.unit_timelines import half_lives, unit_timeline_figure


def test_values_are_the_recorded_ones_with_the_gates_of_their_layer() -> None:
    """Catches keep and write exchanged."""
    inspected = language("lstm")
    (panel,) = unit_timeline_figure(inspected, units=[5, 2]).panels
    found = trace(inspected)
    assert isinstance(panel, UnitTimelines)
    assert panel.title == "layers.0.lstm.memory"
    assert panel.names == ["unit 5", "unit 2"]
    for part, site in ((panel.values, "memory"), (panel.keep, "gate.forget"), (panel.write, "gate.input")):
        np.testing.assert_allclose(part, found[f"layers.0.lstm.{site}"][:, [5, 2]].T)


def test_a_coupled_gate_writes_what_it_does_not_keep() -> None:
    (panel,) = unit_timeline_figure(language("gru")).panels
    np.testing.assert_allclose(panel.keep + panel.write, 1)
    (plain,) = unit_timeline_figure(language("rnn")).panels
    assert plain.keep is None
    assert plain.write is None


@pytest.mark.parametrize("layer", ["lstm", "rnn", "mingru", "mamba", "s4d", "linear-attention"])
def test_every_kind_of_state_can_be_drawn(layer: str, tmp_path: Path) -> None:
    figure = unit_timeline_figure(language([layer]))
    assert figure.save(tmp_path / "r.svg").stat().st_size > 1000
    assert "unit" in figure.text(80)
    assert json.dumps(figure.plain())
    assert len(figure.data) == len(figure.panels[0].names) * 7


def test_errors_name_what_cannot_be_shown() -> None:
    with pytest.raises(ConfigError, match="no layer taps a state"):
        unit_timeline_figure(language("attention"))
    with pytest.raises(ConfigError, match=r"unit 8: .* has 8 units"):
        unit_timeline_figure(language("lstm"), units=[8])
    with pytest.raises(ConfigError, match="layer 2: 1 layers"):
        unit_timeline_figure(classifier("lstm"), layer=2)


def test_half_lives_are_those_of_constant_gates() -> None:
    keep = np.tile([0.5, 0.9, 2**-0.1], (20, 1))
    np.testing.assert_allclose(half_lives(keep), [1, np.log(0.5) / np.log(0.9), 10])
    assert half_lives(np.ones((3, 1))) == np.inf
    assert half_lives(np.zeros((3, 1))) < 0.1


@given(count=some.integers(1, 1000), units=some.integers(1, 3))
def test_downsampling_keeps_sums_and_the_limit_of_columns(count: int, units: int) -> None:
    """Catches a last column divided by the full step."""
    values = np.random.default_rng(count).standard_normal((units, count))
    found = downsampling.means(values)
    assert found.shape[1] == len(downsampling.names([""] * count)) <= downsampling.COLUMNS
    step = downsampling.stride(count)
    sizes = np.minimum(step, count - step * np.arange(found.shape[1]))
    np.testing.assert_allclose((found * sizes).sum(1), values.sum(1), atol=1e-9)
    assert bool(downsampling.note(count)) == (count > downsampling.COLUMNS)


def test_downsampled_attention_sums_to_one() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(450), 450)
    found = downsampling.shares(weights)
    assert found.shape == (150, 150)
    np.testing.assert_allclose(found.sum(1), 1)


def test_a_long_text_is_downsampled_and_a_note_says_so() -> None:
    ids = tuple(torch.randint(1, 10, (449,)).tolist())
    figure = trace(language("gru", ids=ids)).figure("*.hidden")
    assert len(figure.panels[0].columns) == 150
    assert "450 positions in 150 columns" in " ".join(figure.notes)
    attention = attention_figure(language("attention", ids=ids))
    assert attention.panels[0].maps[""].shape == (150, 150)
    assert "450 positions in 150 columns" in " ".join(attention.notes)
    figure = unit_timeline_figure(language("gru", ids=ids))
    assert figure.panels[0].values.shape[1] == 150
