"""What an inspection returns: numbers as tensors and data frames, and the figure that shows them."""

import sys
from collections.abc import Callable

import pytest
import torch
from inspected_texts import classifier, language

import elman
from elman.errors import ConfigError, MissingExtra
from elman.inspection.attention import attention_figure
from elman.inspection.gradients import gradient_figure
from elman.inspection.predictions import prediction_figure
from elman.inspection.result import Inspection
from elman.inspection.summary import Summary, parts_of
from elman.inspection.token_gradients import token_gradients
from elman.inspection.trace import trace
from elman.inspection.units import unit_figure
from elman.layers import LAYERS
from elman.models import LanguageModel, StackConfig
from elman.models.stack import count_parameters

VIEWS: dict[str, Callable[[], Inspection]] = {
    "attention": lambda: attention_figure(language(["attention", {"attention": {"num_heads": 2}}])),
    "gradients": lambda: gradient_figure(language(["lstm"])),
    "predictions": lambda: prediction_figure(language(["lstm"])),
    "class": lambda: prediction_figure(classifier()),
    "units": lambda: unit_figure(language("gru", ids=(1, 2, 4, 1, 3, 5) * 20)),
    "untrained gradients": lambda: elman.inspect.gradients("rnn", "lstm:forget_bias=3", length=9, width=4),
}


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_numbers_agree_with_their_frame_and_can_be_drawn_and_saved(view, tmp_path):
    pytest.importorskip("pandas")
    found = VIEWS[view]()
    assert len(found.numbers) > 1 or view == "attention"
    for name in found:
        frame, values = found.frame(name), found[name]
        assert frame[name].tolist() == (values.flatten().tolist() if isinstance(values, torch.Tensor) else values)
        sizes = list(values.shape) if isinstance(values, torch.Tensor) else [len(values)]
        assert [len(labels) for labels in found.axes(name).values()] == sizes
    assert len(found.frame()) >= len(found.frame(next(iter(found))))
    assert "<svg" in found._repr_html_()
    assert found.plot().get_suptitle() == found.title
    assert found.save(tmp_path / "view.csv").read_text().startswith("# ")


def test_each_row_of_attention_sums_to_one_in_the_tensor_and_in_the_frame():
    pytest.importorskip("pandas")
    inspected = language(["attention", {"attention": {"num_heads": 2}}])
    found = attention_figure(inspected)
    one, two = (found[name] for name in found)
    assert (one.shape, two.shape) == ((1, 7, 7), (2, 7, 7))
    frame = found.frame()  # of layers with one head and with two
    assert set(frame["name"]) == set(found)
    rows = frame.groupby(["name", "head", "query_position"])["value"].sum()
    assert rows.tolist() == pytest.approx([1.0] * (7 + 14))
    last = frame[(frame["name"] == [*found][1]) & (frame["head"] == 2) & (frame["query_position"] == 6)]
    assert last["key"].tolist() == inspected.main
    assert last["value"].tolist() == two[1, 6].tolist()
    (only,) = attention_figure(inspected, layer=2, heads=[1]).numbers
    assert only == [*found][1]


def test_numbers_are_those_of_the_computation():
    inspected = language(["lstm"])
    torch.testing.assert_close(gradient_figure(inspected)["gradient"], torch.tensor(token_gradients(inspected).norms))
    found = prediction_figure(inspected)
    torch.testing.assert_close(found["probability"].sum(1), torch.ones(7))
    wanted = -found["probability"].log2()[torch.arange(6), list(inspected.truth)]
    torch.testing.assert_close(found["surprisal"][:6].float(), wanted)
    assert found["observed"] == ["the", "cat", "sat", "the", "dog", "was", ""]
    with pytest.raises(ConfigError, match=r"'suprisal' is none of its numbers \(did you mean 'surprisal'\?\); it has"):
        found["suprisal"]


def test_a_trace_has_a_frame_of_tokens_and_units(monkeypatch):
    pytest.importorskip("pandas")
    found = trace(language(["lstm"]))
    frame = found.frame("*.gate.*")
    gates = [site for site in found if ".gate." in site]
    assert [*frame.columns] == ["token_position", "token", "unit", *gates]
    assert frame[gates[1]].tolist() == found[gates[1]].flatten().tolist()
    assert repr(found).startswith("<Trace of 7 tokens: embedding 7 × 8, ")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"a data frame needs the package 'pandas': pip install 'elman\[data\]'"):
        found.frame()


@pytest.mark.slow
def test_the_permutation_test_has_a_row_for_each_depth_of_every_layer():
    found = elman.inspect.permutation()
    rows = zip(found.axes("sees")["layer"], found["layers"].tolist(), found["sees"], strict=True)
    sees = {(name, count): words for name, count, words in rows}
    assert {name for name, _ in sees} > set(LAYERS)
    assert (sees["attention", 1], sees["gru", 1]) == ("all, but no order", "order")


@pytest.mark.parametrize("layer", [name for name in LAYERS if LAYERS[name].causal])
def test_a_summary_counts_every_parameter_once(layer):
    model = LanguageModel(StackConfig.make({"pattern": [layer, "lstm"], "hidden_size": 8}), 10)
    found = Summary("a model", [*parts_of(model)])
    assert found.parameters == count_parameters(model)
    assert any(part.kind == layer and part.shape.startswith("8 → ") for part in found.parts)
    assert str(found).startswith("a model\n\npart ")
    assert f"{found.parameters:,} parameters" in str(found)
    assert str(found.parameters) == str(sum(found.frame()["parameters"]))
