"""Gradients through time: equal to autograd's, decay as in an independent measurement, correct diagnoses."""

import math

import numpy as np
import pytest
import torch

from elman.errors import ConfigError, UnknownName
from elman.figures.panels import HeatMap, Lines
from elman.inspection.gradient_decay import DEFAULT_LAYERS, GradientDecay, UntrainedLayer, diagnose, gradient_decay
from elman.inspection.gradients import (
    flat,
    gradient_decay_figure,
    gradient_figure,
    has_vector_state,
    jacobian,
    step_jacobians,
)
from elman.inspection.inspected_text import PRECISIONS, InspectedText, in_precision, inspect_language_model
from elman.inspection.token_gradients import mean_by_lag, token_gradients
from elman.layers import LAYERS
from elman.models import MODELS, LanguageModel, NGram, StackConfig

# |d(v·h_T)/dx| of untrained layers of width 64 at these distances, by an independent script
LAGS = (1, 10, 20, 50, 100)
MEASURED = {
    "rnn": (2e-1, 1e-4, 5e-8, 2e-18, None),
    "rnn:radius=1.2": (3e-1, 2e-2, 2e-3, 1e-6, 9e-12),
    "rnn:orthogonal=true": (3e-1, 2e-2, 9e-4, 8e-8, 2e-14),
    "rnn:orthogonal=true,scale=0.05": (5e-1, 3e-1, 2e-1, 3e-2, 2e-3),
    "gru": (1e-1, 1e-3, 1e-5, 6e-12, 3e-22),
    "lstm:forget_bias=0": (7e-2, 6e-4, 4e-6, 9e-13, None),
    "lstm:forget_bias=1": (8e-2, 9e-3, 1e-3, 4e-6, 2e-10),
    "lstm:forget_bias=3": (6e-2, 4e-2, 3e-2, 1e-2, 8e-3),
    "gru:open.update=3": (3e-2, 2e-2, 1e-2, 3e-3, 3e-4),
    "attention": (2.5e-3, 2.5e-3, 2.3e-3, 2.3e-3, 2.4e-3),
}
VERDICTS = {"rnn:radius=2": "explodes", "lstm:forget_bias=3": "passes", "attention": "passes", "s4d": "passes"}


@pytest.mark.parametrize("name", MEASURED)
def test_gradient_decay_is_that_of_an_independent_measurement(name: str) -> None:
    """Within one and a half orders of magnitude. Catches a forget bias that was ignored."""
    found = gradient_decay(UntrainedLayer.parse(name), length=101)
    for lag, value in zip(LAGS, MEASURED[name], strict=True):
        if value is not None:
            assert abs(math.log10(found.at(lag)) - math.log10(value)) < 1.5 + lag / 100, lag


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm:forget_bias=1", *VERDICTS])
def test_the_diagnosis_has_the_right_verdict_and_a_remedy_where_needed(name: str) -> None:
    """Catches rates per sequence instead of per step."""
    found = diagnose(gradient_decay(UntrainedLayer.parse(name)))
    assert found.verdict == VERDICTS.get(name, "vanishes")
    assert ("Remedy:" in found.words) == (found.verdict in ("vanishes", "explodes"))
    assert found.words.startswith(name)


def test_a_finite_receptive_field_is_not_a_vanishing_gradient() -> None:
    found = diagnose(gradient_decay(UntrainedLayer.parse("window"), length=30))
    assert found.verdict == "ends"
    assert diagnose(gradient_decay(UntrainedLayer.parse("feedforward"), length=9)).verdict == "ends"


def test_an_exponential_decay_has_its_half_life_and_reach() -> None:
    lags = np.arange(150)
    assert "orthogonal: true" not in diagnose(GradientDecay("rnn:orthogonal=true", "rnn", lags, 0.5**lags, 1e-40)).words
    half = diagnose(GradientDecay("x", "rnn", lags, 0.5**lags, 1e-40))
    assert half.rate == pytest.approx(0.5)
    assert half.reach == 25  # 2^-24 relative to lag 1
    assert "half-life is 1 steps" in half.words


def test_float64_reaches_beyond_the_underflow_of_float32() -> None:
    """Catches norms of squares in float32, which underflow at 1e-23."""
    single, double = (gradient_decay(UntrainedLayer.parse("rnn"), precision=kind) for kind in ("float32", "float64"))
    assert single.norms[-1] == 0 < double.norms[-1]
    np.testing.assert_allclose(single.norms[:60], double.norms[:60], rtol=1e-3)
    assert single.norms[single.norms > 0].min() < 1e-35
    panel = gradient_decay_figure([UntrainedLayer.parse("rnn")]).panels[0]
    assert isinstance(panel, Lines)
    assert panel.floor is not None
    assert panel.floor == pytest.approx(1e-38, rel=1)


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn", "peephole", "mingru"])
def test_the_jacobian_of_a_step_is_the_derivative_of_the_state(name: str) -> None:
    """By finite differences. Catches the transposed matrix."""
    layer = UntrainedLayer.parse(name).build(5, 1, torch.float64)
    token = torch.randn(5, dtype=torch.float64)
    from elman.ops.state import map_state

    state = map_state(torch.randn_like, layer.initial_state(1))
    matrix = jacobian(layer, token, state)
    size, before = matrix.shape[0], flat(layer.step(token[None], state)[1])
    for number in range(size):
        move = torch.zeros(1, size, dtype=torch.float64)
        move[0, number] = 1e-6
        parts = iter(move.split([part.shape[1] for part in _parts(state)], 1))
        moved = map_state(lambda part, parts=parts: part + next(parts), state)
        change = (flat(layer.step(token[None], moved)[1]) - before) / 1e-6
        torch.testing.assert_close(matrix[:, number], change[0], atol=1e-5, rtol=1e-4)


def _parts(state):
    from elman.ops.state import tensors

    return [part for _, part in tensors(state)]


def test_orthogonal_steps_have_norm_one_without_a_nonlinearity() -> None:
    layer = UntrainedLayer.parse("rnn:orthogonal=true").build(16, 0, torch.float64)
    found = step_jacobians(layer, torch.zeros(30, 16, dtype=torch.float64))
    assert all(0.5 < one.norm <= 1 + 1e-6 for one in found)
    assert all(one.radius <= one.norm + 1e-9 for one in found)
    assert not has_vector_state(LAYERS["attention"](LAYERS["attention"].Config(), 8).initial_state(1))
    assert step_jacobians(LAYERS["attention"](LAYERS["attention"].Config(), 8), torch.zeros(4, 8)) == []


def inspected_text(pattern: list, size: int = 7, seed: int = 0, **settings) -> InspectedText:
    torch.manual_seed(seed)
    model = LanguageModel(StackConfig.make({"pattern": pattern, "hidden_size": 8, **settings}), 10).double()
    ids = torch.randint(0, 10, (1, size))
    names = [f"w{number}" for number in ids[0].tolist()]
    truth = ids[0, 1:].tolist()
    return InspectedText(
        model, lambda copies, pads=0: model(ids.expand(copies, -1))[0], {"": names}, "next", str, truth
    )


@pytest.mark.parametrize("pattern", [["lstm"], ["gru", "attention"], ["mingru"]], ids=str)
def test_token_gradients_are_those_of_each_prediction(pattern: list) -> None:
    """Compared with one backward pass for each prediction. Catches targets off by one."""
    inspected = inspected_text(pattern)
    found = token_gradients(inspected)
    model = inspected.model.eval()
    ids = torch.tensor([[int(name[1:]) for name in inspected.main]])
    for position in range(6):
        x = (model.embedding(ids) * model.scale).detach().requires_grad_()
        features, _ = model.stack(x, None, None)
        score = model.logits(features)[0, position].log_softmax(-1)[inspected.truth[position]]
        (gradient,) = torch.autograd.grad(score, x)
        np.testing.assert_allclose(found.norms[position], gradient[0].norm(dim=-1).numpy(), rtol=1e-5, atol=1e-12)
    assert not np.triu(found.norms, 1).any(), "causality"
    assert found.targets[:6] == [str(number) for number in inspected.truth]
    assert found.targets[6].endswith("?")


def test_long_texts_give_the_last_rows_with_the_same_values() -> None:
    inspected = inspected_text(["lstm"], size=30)
    whole, some = token_gradients(inspected), token_gradients(inspected, limit=5)
    np.testing.assert_allclose(whole.norms[-5:], some.norms, rtol=1e-6)
    assert (some.first, len(some.targets)) == (25, 5)
    assert mean_by_lag(some, "x").lags[-1] == 29
    assert mean_by_lag(whole, "x").norms[0] == pytest.approx(np.diag(whole.norms).mean())


def test_the_model_is_unchanged_afterwards() -> None:
    inspected = inspected_text(["lstm"], dropout=0.5)
    inspected.model.train()
    first = token_gradients(inspected)
    assert inspected.model.training
    assert all(parameter.grad is None for parameter in inspected.model.parameters())
    np.testing.assert_array_equal(first.norms, token_gradients(inspected).norms)


def test_conversion_to_float64_reaches_further_and_leaves_the_model_alone() -> None:
    """Catches the model itself converted, and with the floor of float32 for both."""
    torch.manual_seed(0)
    model = LanguageModel(StackConfig.make({"pattern": ["rnn"], "hidden_size": 8}), 10)
    ids = torch.randint(0, 10, (220,)).tolist()
    single, double = (
        mean_by_lag(token_gradients(inspect_language_model(in_precision(model, kind), ids, str, 0)), kind)
        for kind in PRECISIONS
    )
    assert all(one.dtype == torch.float32 for one in model.parameters())
    assert in_precision(model, "float32") is model
    assert single.norms[-1] == 0 < double.norms[-1]
    np.testing.assert_allclose(single.norms[:40], double.norms[:40], rtol=1e-3)
    assert double.floor < 1e-300 < single.floor


def test_figures_of_runs_have_decay_matrix_and_jacobians() -> None:
    figure = gradient_figure(inspected_text(["lstm"]))
    assert [type(panel) for panel in figure.panels] == [Lines, HeatMap, Lines]
    assert any("layers.0.lstm" in name for name in figure.panels[2].lines)
    layers = [UntrainedLayer.parse(name) for name in DEFAULT_LAYERS[:2]]
    assert len(gradient_decay_figure(layers, length=20, width=8).panels) == 2


def test_errors_say_what_cannot_be_measured() -> None:
    counted = NGram(MODELS["ngram"].Config(), 5)
    inspected = InspectedText(
        counted, lambda copies, pads=0: counted(torch.zeros(copies, 2).long())[0], {"": ["a", "b"]}, "next", str
    )
    with pytest.raises(ConfigError, match="no gradients"):
        token_gradients(inspected)
    with pytest.raises(UnknownName, match="lstm"):
        UntrainedLayer.parse("lstn")
    with pytest.raises(ConfigError, match="forget_bias=3"):
        UntrainedLayer.parse("lstm:3")
    with pytest.raises(ConfigError, match="only recurrent cells"):
        gradient_decay(UntrainedLayer.parse("attention:radius=2"), length=5)
    with pytest.raises(ConfigError, match="float32, float64"):
        gradient_decay(UntrainedLayer.parse("rnn"), precision="half")


def test_a_user_defined_cell_can_be_inspected() -> None:
    from elman.cells import CELLS, Cell
    from elman.inspection.trace import trace
    from elman.ops.taps import tap

    class Leak(Cell):
        """A leaky sum."""

        sites = {"gate.keep": "share kept"}  # noqa: RUF012

        def __init__(self, config: Cell.Config, input_size: int):
            super().__init__(config, input_size)
            self.from_input = torch.nn.Linear(input_size, 2 * self.hidden_size)

        def drive(self, x):
            return self.from_input(x)

        def step(self, drive, state):
            gate, new = drive.chunk(2, dim=-1)
            keep = tap("gate.keep", torch.sigmoid(gate))
            state = keep * state + new
            return state, state

    try:
        CELLS.register("leak")(Leak)
        closed, opened = (
            gradient_decay(UntrainedLayer.parse(name), length=40) for name in ("leak", "leak:open.keep=5")
        )
        assert opened.at(39) > 1e6 * closed.at(39)
        assert diagnose(closed).verdict == "vanishes"
        found = trace(inspected_text(["leak"]))
        assert found["layers.0.leak.gate.keep"].shape == (7, 8)
        assert found.figure().panels[0].quantity == "gate"
    finally:
        CELLS._items.pop("leak", None)
        LAYERS._items.pop("leak", None)
