"""Training step of every cell on one CPU thread: compiled C++ against nn.LSTM, vendor kernel and reference loop.

Forward and backward of one layer with input size = hidden size. Cells differ in their number of multiplications, so the
speed-up over nn.LSTM (oneDNN) is per multiplication.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from elman.bench.harness import compare, interleaved
from elman.cells import CELLS, Cell
from elman.recurrence import compiled_cpp, forms_that_can_run, recur, using

SHAPES = [(1, 35, 64), (8, 35, 64), (64, 35, 64)]  # rows, steps, units
SHAPES += [(1, 35, 256), (32, 8, 256), (32, 35, 256), (64, 64, 256)]
SHAPES += [(1, 64, 512), (8, 8, 512), (32, 35, 512)]
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "gru": [{}, {"reset": "before"}],
    "residual": [{}, {"form": "antisymmetric"}],
    "peephole": [{}, {"form": "full"}],
}


def multiplications(cell: Any) -> int:
    """Multiplications per row and step, input projection included."""
    made = compiled_cpp.plan(cell)
    assert isinstance(made, compiled_cpp.SequencePlan)
    past = sum(len(node.args) for node in made.step.nodes if node.op == "matmul")
    return cell.from_input.weight.numel() + past * cell.hidden_size**2


def variants(cell: Cell, batch: int, length: int) -> dict[str, Callable[[], Any]]:
    """Forward and backward of nn.LSTM, and of the cell in every implementation that runs here."""
    width = cell.hidden_size
    x, given = torch.randn(batch, length, width, requires_grad=True), torch.randn(batch, length, width)
    lstm = nn.LSTM(width, width, batch_first=True)

    def step(outputs: Callable[[], Tensor], model: nn.Module) -> Callable[[], Any]:
        leaves = [x, *model.parameters()]
        return lambda: torch.autograd.grad(outputs(), leaves, given)

    def running(form: str) -> Callable[[], Tensor]:
        def run() -> Tensor:
            with using(form):
                return recur(cell, x, cell.initial_state(batch))[0]

        return run

    forms = [form for form in forms_that_can_run(cell, x) if form != "newton"]
    return {"nn.LSTM": step(lambda: lstm(x)[0], lstm), **{form: step(running(form), cell) for form in forms}}


def row(cell: Cell, batch: int, length: int, rounds: int) -> dict[str, float]:
    """Milliseconds, speed-up over nn.LSTM per multiplication, and relative times of the other implementations."""
    seconds = interleaved(variants(cell, batch, length), rounds, clock=time.process_time)
    share = multiplications(cell) / (8 * cell.hidden_size**2)
    found = compare(seconds, "nn.LSTM")["compiled"]
    slower = compare(seconds, "compiled")
    others = {f"{form} takes": 1 / slower[form]["faster"] for form in ("vendor", "reference") if form in slower}
    return {"ms": found["ms"], **{key: found[key] * share for key in ("faster", "low", "high")}, **others}


def measure(rounds: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    results: dict[str, dict[str, dict[str, float]]] = {}
    for batch, length, width in SHAPES:
        rows = "1 row" if batch == 1 else f"{batch} rows"
        shape = f"{rows}, {length} steps, {width} units, beside nn.LSTM for as many multiplications"
        table = results[shape] = {}
        print(f"\n{shape}")
        for name in CELLS:
            for settings in SETTINGS.get(name, [{}]):
                cell = CELLS[name](CELLS[name].Config(hidden_size=width, **settings), width)
                title = " ".join([name, *settings.values()])
                one = table[title] = row(cell, batch, length, rounds)
                ratio = f"{one['faster']:.2f} x ({one['low']:.2f} to {one['high']:.2f})"
                others = [f"{key} {value:.2f} x" for key, value in one.items() if key.endswith("takes")]
                print(f"  {title:<24} {one['ms']:8.2f} ms  {ratio:<24} {', '.join(others)}", flush=True)
    return results
