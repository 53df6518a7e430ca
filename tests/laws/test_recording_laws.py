"""The laws of recording, for every registered layer: no effect, no leak, no unmatched pattern, the right time steps."""

from typing import Any

import pytest
import torch
from hypothesis import given
from law_cases import SETTINGS, Case, Situation, assert_same, cases, situations, walk

from elman.cells import CELLS, Cell
from elman.errors import RecordingError
from elman.layers import LAYERS
from elman.ops import taps
from elman.recurrence import using

CELL_NAMES = sorted(CELLS)
every_layer = pytest.mark.parametrize("case", [case for case in cases() if case.form in ("auto", "reference")], ids=str)


@every_layer
@given(situation=situations())
def test_recording_has_no_effect(case: Case, situation: Situation) -> None:
    """Law 7: bit by bit, beside the reference form. Catches: the recorder returned a float32 copy of the value."""
    layer = situation.layer(case)
    x, state = situation.x(), situation.state(layer)
    with using("reference"):
        plain = layer(x, state, situation.lengths)
    with taps.record("*"):
        assert_same(layer(x, state, situation.lengths), plain, 0)
    with taps.record("*"):
        stepped = walk(layer, x, state)
    assert_same(stepped, walk(layer, x, state), 0)


@every_layer
@given(situation=situations())
def test_recording_has_no_effect_on_gradients(case: Case, situation: Situation) -> None:
    """Bit by bit. Catches: the recorder returned a detached value."""
    layer = situation.layer(case)
    x = situation.x().requires_grad_()
    wanted = [x, *layer.parameters()]
    with using("reference"):
        outputs = layer(x, situation.state(layer), situation.lengths)[0]
        plain = torch.autograd.grad(outputs.sum(), wanted, allow_unused=True)
    with taps.record("*"):
        outputs = layer(x, situation.state(layer), situation.lengths)[0]
        recorded = torch.autograd.grad(outputs.sum(), wanted, allow_unused=True)
    for before, after in zip(plain, recorded, strict=True):
        assert (before is None) == (after is None)
        assert before is None or torch.equal(before, after)


@every_layer
@given(situation=situations())
def test_recording_step_by_step_equals_recording_a_whole_sequence(case: Case, situation: Situation) -> None:
    """Catches: the reference loop, or a step of the layer, did not enter `stepping()`."""
    layer = situation.layer(case)
    x, state = situation.x(), situation.state(layer)
    with taps.record("*") as whole:
        layer(x, state)
    with taps.record("*") as steps:
        walk(layer, x, state)
    assert whole.sites() == steps.sites() != []
    for site in whole:
        assert whole[site].shape[:2] == (situation.batch, situation.time)
        assert_same(whole[site], steps[site], 1e-6)


@pytest.mark.parametrize(
    "case", [Case(name, s, "auto") for name in CELL_NAMES for s in SETTINGS.get(name, [{}])], ids=str
)
def test_the_sites_of_a_cell_are_the_taps_that_fire(case: Case) -> None:
    """Catches: a site without a tap; a tap without a site."""
    layer = case.layer()
    with taps.record("*") as recording:
        layer(torch.randn(2, 5, 3, dtype=torch.float64))
    assert set(recording.sites()) == set(layer.cell.sites)
    assert all(layer.cell.sites.values()), "each with its meaning"


@pytest.mark.parametrize("name", CELL_NAMES)
def test_the_recorded_hidden_state_is_the_output(name: str) -> None:
    """Catches: the tap stood before the output gate."""
    layer = Case(name, {}, "auto").layer()
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    with taps.record("hidden") as recording:
        outputs, _ = layer(x)
    assert_same(recording["hidden"], outputs.float(), 1e-6)


def _lstm() -> tuple[torch.nn.Module, torch.Tensor]:
    return Case("lstm", {}, "auto").layer(), torch.randn(
        2, 9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )


def test_no_leak_after_the_block_or_an_exception() -> None:
    """Catches: the listener was not removed on the way out of an exception; nor was the scope."""
    layer, x = _lstm()
    with pytest.raises(ZeroDivisionError), taps.record("*"), taps.scope("a"), taps.stepping():
        raise ZeroDivisionError
    assert not taps.listening()
    with taps.record("*") as recording:
        layer(x)
    assert "gate.forget" in recording.sites()
    assert recording["gate.forget"].shape == (2, 9, 4)


def test_nested_recordings_record_the_same_and_end_independently() -> None:
    """Catches: leaving the inner block removed all listeners."""
    layer, x = _lstm()
    with taps.record("hidden") as outer:
        with taps.record("gate.*") as inner:
            layer(x)
        assert taps.listening()
        layer(x)
    assert outer["hidden"].shape[1] == 18
    assert inner["gate.input"].shape[1] == 9


def test_a_recording_inside_an_edit_sees_the_edited_value_and_one_outside_the_original() -> None:
    layer, x = _lstm()
    with taps.record("gate.forget") as before, taps.edit({"gate.forget": 0.25}), taps.record("gate.forget") as after:
        layer(x)
    assert (after["gate.forget"] == 0.25).all()
    assert not (before["gate.forget"] == 0.25).any()


def test_a_pattern_without_a_match_is_an_error_that_names_the_nearest_site() -> None:
    """Catches: finish() was left out; so was the check of time steps that never came."""
    layer, x = _lstm()
    with pytest.raises(RecordingError, match=r"gate\.forgot.*did you mean 'gate\.forget'"), taps.record("gate.forgot"):
        layer(x)
    with (
        pytest.raises(RecordingError, match=r"gate\.forgot.*did you mean 'gate\.forget'"),
        taps.edit({"gate.forgot": 0.0}),
    ):
        layer(x)
    with pytest.raises(RecordingError, match="no model of elman ran inside"), taps.record("*"):
        pass
    for listener in (taps.record("memory@9"), taps.edit({"memory@9": 0.0})):
        with pytest.raises(RecordingError, match="has 9 time steps"), listener:
            layer(x)
    with pytest.raises(RecordingError, match="from the start"), taps.edit({"memory@-1": 0.0}):
        pass
    with pytest.raises(RecordingError, match="@5, @-1 or @2:6"), taps.record("memory@x"):
        pass


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("@5", [5]),
        ("@-1", [8]),
        ("@-3", [6]),
        ("@2:6", [2, 3, 4, 5]),
        ("@:2", [0, 1]),
        ("@7:", [7, 8]),
        ("@6:-1", [6, 7]),
    ],
)
@pytest.mark.parametrize("run", [lambda layer, x, state: layer(x, state), walk], ids=["whole", "steps"])
def test_a_time_selects_its_steps(time: str, expected: list[int], run) -> None:
    """Catches: @-1 as an empty slice."""
    layer, x = _lstm()
    with taps.record("memory") as everything:
        layer(x)
    with taps.record(f"memory{time}") as some:
        run(layer, x, layer.initial_state(2))
    assert_same(some["memory"], everything["memory"][:, expected], 1e-6)


def test_patterns_that_overlap_record_a_site_once() -> None:
    """Found in the first version: two patterns on one site recorded every value twice."""
    layer, x = _lstm()
    with taps.record("*", "gate.*", "memory@2", "memory@5:7") as recording:
        layer(x)
    assert recording["gate.input"].shape[1] == recording["memory"].shape[1] == 9
    with taps.record("memory@5:7", "memory@2", "memory@-1") as recording:
        layer(x)
    assert recording["memory"].shape[1] == 4


@pytest.mark.parametrize("run", [lambda layer, x, state: layer(x, state), walk], ids=["whole", "steps"])
@pytest.mark.parametrize("time", [0, 3, 8])
def test_an_edit_at_one_time_changes_nothing_before_it_and_something_after(time: int, run) -> None:
    """Catches: the edit ignored its time; the cell did not receive the edited value."""
    layer, x = _lstm()
    state = layer.initial_state(2)._replace(memory=torch.ones(2, 4, dtype=torch.float64))
    plain, _ = run(layer, x, state)
    with taps.edit({f"gate.forget@{time}": 0.0}):
        edited, _ = run(layer, x, state)
    assert_same(plain[:, :time], edited[:, :time])  # edits go through the reference: another form, rounded otherwise
    assert all(bool(((plain - edited)[:, t].abs() > 1e-6).any()) for t in range(time, 9))


@pytest.mark.parametrize("run", [lambda layer, x, state: layer(x, state), walk], ids=["whole", "steps"])
def test_values_recorded_in_one_run_can_be_patched_into_another(run) -> None:
    """Found in the first version: a patch with a time axis silently changed the shape of a step."""
    layer, x = _lstm()
    layer = layer.float()
    x, other, state = x.float(), -x.float(), layer.initial_state(2)
    with taps.record("*") as source:
        expected, _ = layer(x)
    with taps.edit({site: source[site] for site in ("memory", "hidden")}):
        assert_same(run(layer, other, state)[0], expected, 1e-6)
    with taps.edit({"hidden@2:6": source["hidden"][:, 2:6]}):
        patched, _ = run(layer, other, state)
    assert_same(patched[:, 2:6], expected[:, 2:6], 1e-6)
    with (
        pytest.raises(RecordingError, match="4 time steps ends before"),
        taps.edit({"hidden": source["hidden"][:, :4]}),
    ):
        run(layer, other, state)
    with pytest.raises(RecordingError, match="has shape"), taps.edit({"hidden": source["hidden"][..., :3]}):
        run(layer, other, state)
    with pytest.raises(RecordingError, match="has shape"), taps.edit({"hidden": lambda value: value[..., :3]}):
        run(layer, other, state)


def test_an_edit_may_be_a_function_and_lets_gradients_through() -> None:
    layer, x = _lstm()
    x.requires_grad_()
    with taps.edit({"gate.*": lambda gate: 1 - gate}), taps.record("gate.output@0") as recording:
        layer(x)[0].sum().backward()
    assert x.grad.abs().sum() > 0
    with taps.record("gate.output@0") as plain:
        layer(x)
    assert_same(recording["gate.output"], 1 - plain["gate.output"], 1e-6)


def test_a_recording_is_of_one_batch() -> None:
    layer, x = _lstm()
    with taps.record("hidden"):
        layer(x)
        with pytest.raises(RecordingError, match="one batch"):
            layer(x[:1])


def test_a_large_recording_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taps, "WARN_BYTES", 300)
    layer, x = _lstm()
    with pytest.warns(UserWarning, match="narrow the pattern") as warned, taps.record("*"):
        layer(x)
    assert len(warned) == 1


def test_only_requested_time_steps_take_memory() -> None:
    layer, x = _lstm()
    with taps.record("memory@2") as recording:
        layer(x)
    assert recording._bytes == 2 * 4 * 4


def test_scopes_name_the_layers_of_a_stack() -> None:
    layer = Case("recurrent", {"num_layers": 2}, "auto").layer()
    with taps.scope("layers.0"), taps.record("*.gate.forget") as recording:
        layer(torch.randn(1, 3, 3, dtype=torch.float64))
    assert recording.sites() == ["layers.0.0.lstm.gate.forget", "layers.0.1.lstm.gate.forget"]


def test_a_user_cell_is_a_layer_that_can_be_recorded() -> None:
    """A cell registered later is found by name, runs in the reference form, and explains why."""

    class Leak(Cell):
        """A leaky sum."""

        sites = {"sum": "what has not leaked yet"}  # noqa: RUF012

        def __init__(self, config: Cell.Config, input_size: int):
            super().__init__(config, input_size)
            self.from_input = torch.nn.Linear(input_size, self.hidden_size)

        def drive(self, x):
            return self.from_input(x)

        def step(self, drive, state):
            state = taps.tap("sum", 0.5 * state + drive)
            return state, state

    try:
        CELLS.register("leak")(Leak)
        assert "leak" in list(LAYERS)
        assert LAYERS.describe()["leak"] == "A leaky sum."
        layer = LAYERS["leak"](LAYERS["leak"].Config(hidden_size=4), 3)
        x = torch.randn(2, 5, 3)
        assert layer.explain(2, 5).endswith("leak has no vendor kernel")
        with taps.record("sum") as recording:
            outputs, _ = layer(x)
        assert_same(outputs, walk(layer, x, layer.initial_state(2))[0], 1e-6)
        assert torch.equal(recording["sum"], outputs)
    finally:
        CELLS._items.pop("leak", None)
        LAYERS._items.pop("leak", None)


@pytest.mark.parametrize(
    ("listen", "told"),
    [
        (lambda: taps.edit({"*.hidden": "open"}), "the new value is a number, a tensor or a function .*, not 'open'"),
        (lambda: taps.edit({"*.hidden": lambda value: None}), "not a function that returns None"),
        (lambda: taps.edit(0.5), "edits are given as {site: value}, not 0.5"),
        (lambda: taps.record(["*.hidden"]), "a site is a text, not .*; several are given one by one: 'a', 'b'"),
    ],
)
def test_what_cannot_be_a_site_or_a_value_is_told_in_these_words(listen: Any, told: str) -> None:
    layer = LAYERS["gru"](LAYERS["gru"].Config(), 4)
    with pytest.raises(RecordingError, match=told), listen(), taps.scope("layers.0"):
        layer(torch.zeros(1, 3, 4))
