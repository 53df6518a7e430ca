"""What is measured, the most telling first: one shape of each kind, then the other shapes, then partitions to sweep."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from elman.cells import CELLS, Cell
from elman.compiler.ir import StepIR
from elman.compiler.triton.partition import Partition
from elman.compiler.triton.search import PROCESSORS, candidates, step_time
from elman.layers import LAYERS
from elman.layers.recurrent import Recurrent
from elman.recurrence import compiled_triton

KINDS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class Case:
    cell: str
    shape: tuple[int, int, int]
    """Batch, time, width of input and state."""
    settings: tuple[tuple[str, Any], ...] = ()
    kinds: tuple[str, ...] = ("bf16",)
    """In which dtypes ours runs; torch's runs in all."""
    form: str = ""
    """Besides the plain one: two layers, both ways, ragged, sweep, and alone, while nothing else is compiled."""
    precision: str = "high"
    """Of products in float32."""
    timed: bool = True
    draws: int = 1
    """Of inputs that it is checked with: how near few rows come to float64 is chance."""

    @property
    def name(self) -> str:
        settings = ",".join(f"{key}={value}" for key, value in self.settings)
        exact = "exact" if self.precision == "highest" else ""
        return " ".join(filter(None, [self.cell, settings, self.form, exact, "x".join(map(str, self.shape))]))

    def shortened(self, batch: int, time: int, size: int) -> "Case":
        rows, steps, units = self.shape
        return replace(self, shape=(min(rows, batch), min(steps, time), min(units, size)))

    def set_precision(self) -> None:
        """For all that runs from here on, torch's kernels included."""
        torch.set_float32_matmul_precision(self.precision)
        torch.backends.cudnn.allow_tf32 = self.precision != "highest"


class Swinging(Cell):
    """A cell that no library has: two states that turn round each other, gated."""

    name = "swinging"

    def __init__(self, config: Cell.Config, input_size: int):
        super().__init__(config, input_size)
        self.from_input = nn.Linear(input_size, 3 * self.hidden_size)
        self.from_past = nn.Linear(self.hidden_size, 3 * self.hidden_size, bias=False)
        self.angle = nn.Parameter(torch.rand(self.hidden_size))

    def initial_state(self, batch: int) -> tuple[Tensor, Tensor]:
        return self.zeros(batch), self.zeros(batch)

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        here, there = state
        keep, push, show = (drive + self.from_past(here.to(drive.dtype))).chunk(3, -1)
        cosine, sine = torch.cos(self.angle), torch.sin(self.angle)
        keep = torch.sigmoid(keep)
        new = keep * (cosine * here - sine * there) + (1 - keep) * torch.tanh(push)
        other = keep * (sine * here + cosine * there)
        return torch.sigmoid(show) * new, (new, other)


class SwingingLayer(Recurrent):
    cell_class = Swinging


def build(case: Case, kind: torch.dtype, device: str) -> nn.Module:
    """The layer, always with the same weights."""
    torch.manual_seed(0)
    size, settings = case.shape[2], dict(case.settings)
    inner = {case.cell: settings}
    layer: Any
    if case.form == "two layers":
        layer, config = LAYERS["recurrent"], {"cell": inner, "num_layers": 2, "hidden_size": size}
    elif case.form == "both ways":
        layer, config = LAYERS["bidirectional"], {"layer": inner, "hidden_size": size}
    elif case.cell == Swinging.name:
        return SwingingLayer(Swinging.Config(hidden_size=size), size).to(device, kind)
    else:
        layer, config = LAYERS[case.cell], {"hidden_size": size, **settings}
    return layer(layer.Config.make(config), size).to(device, kind)


def tuning(program: StepIR, batch: int, itemsize: int, processors: int, most: int = 6) -> list[Partition]:
    """Partitions worth timing on a GPU, best estimate first, at most half of them of one kind of exchange."""
    found = candidates(program, batch, itemsize, processors)
    seen: Counter[tuple[str, bool]] = Counter()
    chosen = []
    for part in sorted(found, key=lambda part: step_time(program, part, itemsize)):
        seen[part.sync, part.wgmma] += 1
        if seen[part.sync, part.wgmma] <= max(1, most // 2):
            chosen.append(part)
    return chosen[:most]


def divisions(case: Case) -> list[dict[str, Any]]:
    """What to try forward and backward, the most promising first."""
    batch, _, size = case.shape
    kind: Any = CELLS[case.cell]
    made: Any = compiled_triton.compiled_cell(kind(kind.Config(hidden_size=size, **dict(case.settings)), size))
    ways = {way: tuning(made.program(way), batch, 2, PROCESSORS) for way in ("forward", "backward")}
    count = max(map(len, ways.values()))
    return [{way: asdict(parts[min(n, len(parts) - 1)]) for way, parts in ways.items()} for n in range(count)]


ALL = tuple(KINDS)
MIDDLE = (64, 512, 512)
AFTER_LSTM: list[tuple[str, dict[str, Any]]] = [
    ("gru", {}),
    ("gru", {"reset": "before"}),
    ("rnn", {}),
    ("peephole", {}),
    ("coupled", {}),
    ("layernorm-lstm", {}),
    ("swinging", {}),
]
OTHERS: list[tuple[str, dict[str, Any]]] = [("peephole", {"form": "full"}), ("gated", {}), ("residual", {})]
POSTED: list[tuple[str, dict[str, Any]]] = [("rnn", {}), ("gru", {"reset": "before"}), ("layernorm-lstm", {})]
ODD = [(20, 256, 650), (20, 256, 1150), (1, 1024, 512), (7, 512, 512)]
SHORT = [(20, 35, 200), (32, 64, 128), (64, 32, 64)]  # where the host may take longer than the device
SWEPT = [
    *(Case("lstm", shape, form="sweep") for shape in ((64, 512, 256), (64, 512, 768), (32, 1024, 1024))),
    Case("gru", MIDDLE, form="sweep"),
    Case("gru", MIDDLE, (("reset", "before"),), form="sweep"),
    Case("layernorm-lstm", MIDDLE, form="sweep"),
]


def _cells(cells: list[tuple[str, dict[str, Any]]], shape: tuple[int, int, int], **more: Any) -> list[Case]:
    return [Case(name, shape, tuple(settings.items()), **more) for name, settings in cells]


CASES = [
    Case("layernorm-lstm", MIDDLE, form="alone", timed=False),
    Case("lstm", (64, 512, 256), kinds=ALL),
    *_cells(AFTER_LSTM, MIDDLE),
    *(Case("lstm", MIDDLE, form=form) for form in ("two layers", "both ways", "ragged")),
    *(Case("lstm", shape) for shape in ODD),
    *(Case("lstm", (64, 512, size), kinds=ALL) for size in (768, 512)),
    *(Case("lstm", shape, kinds=ALL) for shape in ((32, 1024, 1024), (16, 2048, 512))),
    *_cells(OTHERS, MIDDLE),
    Case("lstm", (32, 512, 200)),
    *(Case("lstm", shape, kinds=ALL) for shape in SHORT),
    *SWEPT,
    Case("lstm", (64, 512, 256), kinds=("fp32",), precision="highest", timed=False),
    *(
        case
        for form in ("ragged", "both ways")
        for size in (200, 384, 512)
        for case in _cells(POSTED, (20, 48, size), form=form, timed=False)
    ),
    *(
        case
        for form in ("", "ragged")
        for case in _cells(
            [("lstm", {}), *AFTER_LSTM, *OTHERS],
            (7, 48, 100),
            kinds=("fp32",),
            form=form,
            precision="highest",
            timed=False,
            draws=16,
        )
    ),
]


def chosen(only: Sequence[str], but: Sequence[str] = ()) -> list[Case]:
    """Those with one of the first texts in their name, or all if there are none, and with none of the second."""
    found = [case for case in CASES if not only or any(part in case.name for part in only)]
    return [case for case in found if not any(part in case.name for part in but)]
