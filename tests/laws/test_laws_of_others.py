"""Layers that others wrote are held to the laws before they are trained, and ours are never accused."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from law_cases import SETTINGS, Case
from torch import Tensor, nn

from elman.cells import CELLS, Cell
from elman.comparison.user_modules import read_modules
from elman.errors import ConfigError
from elman.layers import LAYERS
from elman.layers.laws import agree, broken, examine, foreign, sources
from elman.layers.recurrent import Recurrent
from elman.models import LanguageModel, StackConfig


class Tanh(Cell):
    """A lawful one."""

    def __init__(self, config: Cell.Config, input_size: int):
        super().__init__(config, input_size)
        self.from_input = nn.Linear(input_size, self.hidden_size)
        self.from_past = nn.Linear(self.hidden_size, self.hidden_size)
        self.calls = 0

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(drive + self.from_past(state))
        return hidden, hidden


class Future(Tanh):
    def drive(self, x: Tensor) -> Tensor:
        drive = self.from_input(x)
        return drive + 0.5 * drive.roll(-1, dims=-2)


class Shifted(Tanh):
    """The word before, which a step does not have."""

    def drive(self, x: Tensor) -> Tensor:
        drive = self.from_input(x)
        return drive + nn.functional.pad(drive, (0, 0, 1, 0))[..., :-1, :] if x.dim() == 3 else drive


class Mixing(Tanh):
    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return super().step(drive + 0.5 * state.mean(0, keepdim=True), state)


class Counting(Tanh):
    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        return super().step(drive * (1 + self.calls % 5), state)


class Drawing(Tanh):
    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return super().step(drive * random.random(), state)


class Narrow(Tanh):
    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden, state = super().step(drive, state)
        return hidden[:, :2], state


class Bursting(Tanh):
    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return super().step(drive * torch.nan, state)


class Failing(Tanh):
    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.nothing(drive), state  # type: ignore[operator]


class Widening(Tanh):
    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden, state = super().step(drive, state.to(drive.dtype))
        return hidden, state.double()


class Overwriting(Tanh):
    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return super().step(drive.mul_(0.5), state)


class Detached(Tanh):
    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.from_numpy(torch.tanh(drive + self.from_past(state)).detach().numpy())
        return hidden, hidden


BREAKERS = [
    (Widening, "in another type than it begins with"),
    (Overwriting, r"fails with RuntimeError.*in-?place"),
    (Detached, "no gradient"),
    (Future, "sees the future"),
    (Shifted, "step by step"),
    (Mixing, "texts beside it"),
    (Counting, "asked again"),
    (Drawing, "asked again"),
    (Narrow, r"has 4 units, but an output has the shape \(2,\)"),
    (Bursting, "not finite"),
    (Failing, r"fails with AttributeError.* has no attribute 'nothing' \(line \d+ of test_laws_of_others.py\)"),
]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Registers a cell, which is forgotten afterwards."""
    for registry in (CELLS, LAYERS):
        monkeypatch.setattr(registry, "_items", dict(registry._items))
    return lambda kind: CELLS.register(kind.__name__.lower())(kind)


@pytest.mark.parametrize("name", LAYERS)
def test_no_layer_of_ours_is_accused(name: str) -> None:
    for settings in SETTINGS.get(name, [{}]):
        layer = Case(name, settings, "reference").layer()
        assert broken(layer) == broken(layer.float()) == ""
        assert not foreign(layer)


@pytest.mark.parametrize(("kind", "told"), BREAKERS)
def test_who_breaks_a_law_is_told_which(registered: Any, kind: type[Cell], told: str) -> None:
    registered(kind)
    name = kind.__name__.lower()
    model = LanguageModel(StackConfig.make({"pattern": ["lstm", name], "hidden_size": 4}), 7)
    with pytest.raises(ConfigError, match=f"'{name}' breaks a law, and its scores would not be true: .*{told}"):
        examine(model)


def test_who_keeps_them_is_named_and_nothing_of_it_moves(registered: Any) -> None:
    """Planted: its own counter ran; torch's dice were thrown."""
    registered(Tanh)
    model = LanguageModel(StackConfig.make({"pattern": ["lstm", "tanh"], "hidden_size": 4}), 7).train()
    dice = torch.get_rng_state()
    assert examine(model) == ["tanh"]
    assert torch.equal(dice, torch.get_rng_state())
    assert all(part.training for part in model.modules())
    assert examine(LanguageModel(StackConfig.make({"hidden_size": 4}), 7)) == []


class Careless(Recurrent):
    """Reads on where a text has ended."""

    cell_class = Tanh
    Config = Tanh.Config
    __module__ = "elsewhere"

    def forward(self, x: Any, state: Any = None, lengths: Any = None) -> Any:
        return super().forward(x, state, None)


def test_whoever_reads_padding_is_told(registered: Any) -> None:
    LAYERS.register("careless")(Careless)
    assert broken(Careless(Tanh.Config(hidden_size=4), 3)).endswith("depends on the padding behind it")


def test_layers_that_look_both_ways_may_see_what_comes(registered: Any) -> None:
    registered(Tanh)
    kind = LAYERS["bidirectional"]
    layer = kind(kind.Config.make({"layer": "tanh", "hidden_size": 4}), 3)
    assert foreign(layer)
    assert broken(layer) == ""


CELL = """
from elman.cells import CELLS
from elman.cells.rnn import RNN


@CELLS.register("mine")
class Mine(RNN):
    'An own cell.'
"""


def test_files_of_others_are_told_apart_by_their_text(registered: Any, tmp_path: Path) -> None:
    registered(Tanh)
    model = LanguageModel(StackConfig.make({"pattern": ["lstm", "tanh"], "hidden_size": 4}), 7)
    assert sources(LanguageModel(StackConfig.make({"hidden_size": 4}), 7)) == {}
    own = {"test_laws_of_others.Tanh"}
    assert sources(model).keys() == own
    (tmp_path / "mine.py").write_text(CELL)
    read_modules([tmp_path / "mine.py"])
    mine = LanguageModel(StackConfig.make({"pattern": ["mine"], "hidden_size": 4}), 7)
    assert sources(mine).keys() == {"mine.py"}
    agree(sources(model), sources(model), "run")
    with pytest.raises(ConfigError, match="not the same as when the run began"):
        agree(dict.fromkeys(own, "another"), sources(model), "run")


@pytest.mark.parametrize("kind", ["Abstract", "Unbuildable"])
def test_a_cell_that_cannot_be_built_is_named(registered: Any, kind: str) -> None:
    def signature(self: Any, config: Any) -> None:
        raise AssertionError

    methods = {"drive": Tanh.drive} if kind == "Abstract" else {"__init__": signature, "step": Tanh.step}
    registered(type(kind, (Cell,), {**methods, "__doc__": "It cannot be built."}))
    with pytest.raises(ConfigError, match=f"cell '{kind.lower()}' cannot be built: .*(abstract|argument)"):
        LanguageModel(StackConfig.make({"pattern": [kind.lower()], "hidden_size": 4}), 7)


def test_a_name_is_given_once(registered: Any) -> None:
    registered(Tanh)
    with pytest.raises(ConfigError, match="a cell named 'tanh' already exists"):
        registered(Tanh)
