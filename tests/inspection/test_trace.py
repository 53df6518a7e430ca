"""Traces: recorded activations beside their tokens, within an interactive response time."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from inspected_texts import WORDS, classifier, language
from operation_count import operations
from safetensors import safe_open

from elman.errors import RecordingError
from elman.figures.panels import HeatMap
from elman.inspection.trace import Trace, site_descriptions, trace
from elman.layers import LAYERS

CAUSAL = sorted(name for name in LAYERS if LAYERS[name].causal and name not in ("positions",))


@pytest.mark.parametrize("layer", CAUSAL)
def test_every_layer_has_a_trace_and_a_figure(layer: str) -> None:
    """Catches three-dimensional sites taken for attention."""
    found = trace(language([layer]))
    assert set(found) >= {"embedding", "output.logits"}
    assert all(len(found[site]) == len(found.tokens) == 7 for site in found)
    figure = found.figure()
    assert figure.panels
    assert figure.text(80)
    assert found.figure("*").panels


def test_a_heat_map_has_time_along_its_columns_and_the_recorded_values() -> None:
    found = trace(language("lstm"))
    (panel,) = found.figure("layers.0.lstm.gate.forget").panels
    assert isinstance(panel, HeatMap)
    np.testing.assert_array_equal(panel.maps[""], found["layers.0.lstm.gate.forget"].double().numpy().T)
    assert list(panel.columns) == ["<eos>", *(WORDS[id] for id in (1, 2, 4, 1, 3, 5))]
    assert (panel.quantity, len(panel.rows)) == ("gate", 8)


def test_the_default_sites_are_gates_and_states_or_else_attention() -> None:
    assert {panel.quantity for panel in trace(language("lstm")).figure().panels} == {"gate", "state"}
    shown = trace(language([{"attention": {"num_heads": 2}}])).figure().panels
    assert [panel.quantity for panel in shown] == ["attention"]
    assert [len(panel.maps) for panel in shown] == [2]
    with pytest.raises(RecordingError, match=r"gate\.forgot.*did you mean"):
        trace(language("lstm")).figure("layers.0.lstm.gate.forgot")


def test_weights_of_causal_attention_are_a_lower_triangular_matrix() -> None:
    """Catches the recorded band instead of positions."""
    (panel,) = trace(language("attention")).figure("*.weights").panels
    (weights,) = panel.maps.values()
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-5)
    assert not np.triu(weights, 1).any()


def test_a_trace_can_be_saved_as_arrays_or_as_a_figure(tmp_path: Path) -> None:
    found = trace(classifier(), ["*.hidden"])
    with safe_open(found.save(tmp_path / "t.safetensors"), "pt") as kept:
        assert torch.equal(kept.get_tensor("layers.0.lstm.hidden"), found["layers.0.lstm.hidden"])
        assert "cat" in kept.metadata()["tokens"]
    assert found.save(tmp_path / "t.csv").read_text().startswith("# layers.0.lstm.hidden")
    assert "<figure" in found._repr_html_()


def test_each_site_has_the_tokens_of_its_own_side() -> None:
    sides = {"decoder": ["x", "y"], "encoder": ["a", "b", "c"]}
    found = Trace(sides, {})
    assert found.tokens == ["x", "y"]
    assert found.tokens_of("encoder.embedding") == ["a", "b", "c"]
    assert found.tokens_of("decoder.cross-attention.key") == ["a", "b", "c"]
    assert found.tokens_of("decoder.cross-attention.weights") == ["x", "y"]


def test_backward_layers_have_the_tokens_in_reverse_order() -> None:
    """Catches the order of the text."""
    inspected = classifier([{"bidirectional": {"layer": "gru"}}], ids=(1, 2, 5, 7, 8))
    found = trace(inspected)
    (panel,) = found.figure("*.backward.gru.hidden").panels
    assert list(panel.columns) == ["good", "not", "was", "cat", "the"]
    alone = trace(classifier([{"bidirectional": {"layer": "gru"}}], ids=(8,)))
    site = "layers.0.bidirectional.backward.gru.hidden"
    torch.testing.assert_close(found[site][0], alone[site][0])


def test_every_site_of_a_model_has_a_description() -> None:
    inspected = language(["lstm", "attention"], residual=True)
    found = site_descriptions(inspected.model, list(trace(inspected)))
    assert all(found.values()), found
    assert found["layers.0.lstm.gate.forget"] == "forget gate: share of the memory that is kept (f)"


def test_a_trace_takes_few_operations_and_few_calls_of_python_per_token() -> None:
    """37 and 139 were counted, as when 200 tokens and a million parameters took less than 0.3 s. Catches positions
    selected one by one, and with patterns matched at each step."""

    def cost(tokens: int) -> tuple[int, int]:
        inspected = language("lstm", ids=tuple(range(10)) * (tokens // 10))
        trace(inspected)
        return operations(lambda: trace(inspected)).calls, calls(lambda: trace(inspected))

    (few, before), (many, after) = cost(50), cost(150)
    assert many - few < 100 * 42
    assert after - before < 100 * 160


def calls(run: Callable[[], object]) -> int:
    """Of functions of Python and C, from Python."""
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return counted


def test_a_site_of_neither_side_has_the_target_tokens() -> None:
    """As the length prediction of a non-autoregressive model. Seen to fail by crashing."""
    sides = {"decoder": ["<eos>", "b"], "encoder": ["a"]}
    found = Trace(sides, {"length.logits": torch.zeros(3), "encoder.layers.0.x.gate.a": torch.zeros(1, 2)})
    assert found.tokens_of("length.logits") == ["<eos>", "b"]
    assert len(found.figure("*").panels) == 2
