"""Runs a cell in two forms and compares outputs, last states and all gradients; for all compiled forms."""

from typing import Any

import torch
from cell_cases import cell_of, parts_of
from torch import Tensor

from elman.cells import Cell
from elman.recurrence import recur, using


def carried(cell: Cell, batch: int) -> list[Tensor]:
    """A random state, as in the middle of a sequence."""
    return [torch.randn_like(part).mul(0.5) for part in parts_of(cell.initial_state(batch))]


def results(run: Any, cell: Cell, x: Tensor, state: list[Tensor], lengths: Tensor | None = None) -> list[Tensor | None]:
    """Outputs at real positions, the last state, and all gradients of a loss that weights every element differently."""
    cell.zero_grad()
    x = x.clone().requires_grad_()
    state = [part.clone().requires_grad_() for part in state]
    form = cell.initial_state(1)
    outputs, final = run(cell, x, state[0] if isinstance(form, Tensor) else type(form)(*state), lengths)
    if lengths is not None:
        outputs = outputs * (torch.arange(x.shape[1]) < lengths.unsqueeze(1)).unsqueeze(-1)
    loss = (outputs * torch.linspace(-1, 2, outputs.numel()).view_as(outputs)).sum()
    loss = loss + sum((part**2).sum() for part in parts_of(final))
    loss.backward()
    leaves = [x, *state, *cell.parameters()]
    return [outputs.detach(), *(part.detach() for part in parts_of(final)), *(leaf.grad for leaf in leaves)]


def assert_same(found: list[Tensor | None], expected: list[Tensor | None], tolerance: float = 2e-5) -> None:
    """No gradient is the same as a gradient of zeros."""
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        if a is None or b is None:
            assert not any(one is not None and one.any() for one in (a, b))
        else:
            torch.testing.assert_close(a, b, atol=tolerance * (1 + float(b.abs().max())), rtol=tolerance)


def compare(
    case: Any,
    batch: int,
    time: int,
    size: int,
    lengths: list[int] | None = None,
    tolerance: float = 2e-5,
    form: str = "generated",
    kind: torch.dtype = torch.float32,
) -> None:
    """A form against the reference loop."""
    torch.manual_seed(batch)
    cell = cell_of(*case, hidden_size=size).to(kind)
    x, state = torch.randn(batch, time, 3, dtype=kind), carried(cell, batch)
    rows = None if lengths is None else torch.tensor(lengths)
    found = []
    for one in (form, "reference"):
        with using(one):
            found.append(results(recur, cell, x, state, rows))
    assert_same(*found, tolerance=tolerance)
