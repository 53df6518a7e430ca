"""Layers of users are checked against the laws before they are trained; registered layers never fail this check."""

import random
from pathlib import Path
from typing import Any, NamedTuple

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
    """Keeps all laws."""

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
    """Reads the previous input too, which a single step does not have."""

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


class StateInPlace(Tanh):
    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(drive + self.from_past(state))
        with torch.no_grad():
            state.data.copy_(hidden)
        return hidden, hidden


class Pair(NamedTuple):
    hidden: Tensor
    memory: Tensor


class TwoParts(Tanh):
    """A state of two parts, without an initial state of its own: that of `Cell` has one."""

    def step(self, drive: Tensor, state: Any) -> tuple[Tensor, Any]:
        hidden, _ = super().step(drive, state.hidden)
        return hidden, Pair(hidden, state.memory + hidden)


class Unpacking(TwoParts):
    def step(self, drive: Tensor, state: Any) -> tuple[Tensor, Any]:
        hidden, memory = state
        return super().step(drive, Pair(hidden, memory))


class BareTuple(Unpacking):
    def initial_state(self, batch: int) -> Any:
        return self.zeros(batch), self.zeros(batch)


class NoRows(TwoParts):
    def initial_state(self, batch: int) -> Any:
        return Pair(self.zeros(batch), self.zeros(1)[0])


ALL = r"A state of several parts begins with all of them: in initial_state\(batch\), `return {}\(self.zeros\(batch\), "
BREAKERS = [
    (TwoParts, "contract", "initial_state gives one tensor, from which step fails: .*'hidden'.*" + ALL.format("State")),
    (Unpacking, "contract", "initial_state gives one tensor, from which step fails: too many.*" + ALL.format("State")),
    (BareTuple, "contract", r"gives tuple\(.*\), and step Pair\(hidden, memory\)\. " + ALL.format("Pair")),
    (NoRows, "contract", r"initial_state\(3\) gives a part of shape \(4,\); the rows of the batch come first"),
    (Widening, "contract", "begins as torch.float32 and becomes torch.float64"),
    (Overwriting, "rows", r"fails with RuntimeError.*in-?place"),
    (Detached, "gradients", "no gradient"),
    (StateInPlace, "values", "in place"),
    (Future, "causality", "sees the future"),
    (Shifted, "agreement", "step by step"),
    (Mixing, "rows", "other sequences of the batch"),
    (Counting, "determinism", "keeps something outside its state"),
    (Drawing, "determinism", "draws them"),
    (Narrow, "contract", r"has 4 units, but an output has the shape \(2,\)"),
    (Bursting, "contract", "not finite"),
    (Failing, "contract", r"AttributeError.* has no attribute 'nothing' \(line \d+ of test_user_layers.py\)"),
]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Registers a cell for one test."""
    for registry in (CELLS, LAYERS):
        monkeypatch.setattr(registry, "_items", dict(registry._items))
    return lambda kind: CELLS.register(kind.__name__.lower())(kind)


@pytest.mark.parametrize("name", LAYERS)
def test_no_registered_layer_is_refused(name: str) -> None:
    for settings in SETTINGS.get(name, [{}]):
        layer = Case(name, settings, "reference").layer()
        assert broken(layer) == broken(layer.float()) == ""
        assert not foreign(layer)


@pytest.mark.parametrize(("kind", "law", "told"), BREAKERS)
def test_a_user_cell_that_breaks_a_law_is_refused(registered: Any, kind: type[Cell], law: str, told: str) -> None:
    registered(kind)
    name = kind.__name__.lower()
    model = LanguageModel(StackConfig.make({"pattern": ["lstm", name], "hidden_size": 4}), 7)
    with pytest.raises(
        ConfigError, match=f"'{name}' breaks the law of {law}: .*{told}.*; its scores would not be valid"
    ):
        examine(model)


def test_a_lawful_cell_is_accepted_and_left_as_it_was(registered: Any) -> None:
    """Catches a counter of the cell that ran, and with random numbers drawn from torch's generator."""
    registered(Tanh)
    model = LanguageModel(StackConfig.make({"pattern": ["lstm", "tanh"], "hidden_size": 4}), 7).train()
    generator = torch.get_rng_state()
    assert examine(model) == ["tanh"]
    assert torch.equal(generator, torch.get_rng_state())
    assert all(part.training for part in model.modules())
    assert examine(LanguageModel(StackConfig.make({"hidden_size": 4}), 7)) == []


class Careless(Recurrent):
    """Ignores the lengths of rows."""

    cell_class = Tanh
    Config = Tanh.Config
    __module__ = "elsewhere"

    def forward(self, x: Any, state: Any = None, lengths: Any = None) -> Any:
        return super().forward(x, state, None)


def test_a_layer_that_reads_padding_is_refused(registered: Any) -> None:
    LAYERS.register("careless")(Careless)
    assert broken(Careless(Tanh.Config(hidden_size=4), 3)).startswith("the law of padding: ")


def test_bidirectional_layers_may_read_the_future(registered: Any) -> None:
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


def test_user_files_are_identified_by_their_source(registered: Any, tmp_path: Path) -> None:
    registered(Tanh)
    model = LanguageModel(StackConfig.make({"pattern": ["lstm", "tanh"], "hidden_size": 4}), 7)
    assert sources(LanguageModel(StackConfig.make({"hidden_size": 4}), 7)) == {}
    own = {"test_user_layers.Tanh"}
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
