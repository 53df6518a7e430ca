"""Runs a cell over a sequence: a reference loop, faster forms of it, and a dispatcher.

`recur(cell, x, state, lengths)` runs the fastest form that is supported here, by measurements; `explain` names it.
The two cells of a bidirectional layer may share a kernel launch: `recur_both`, unless `apart` gives a reason.
"""

from typing import Any

from elman.ops.forms import Choice, Form, Forms, asked, using
from elman.ops.lookup import Lookup
from elman.recurrence import compiled_cpp, compiled_triton, newton, reference, vendor
from elman.recurrence.vendor import VendorCall
from elman.shapes import Lengths, Sequence, State


def _form(module: Any, device: str | None = None) -> Form:
    return Form(module.run, module.title, module.obstacle, module.drawback, device)


FORMS = Forms(
    "the recurrence",
    {
        "generated": _form(compiled_triton, "cuda"),
        "compiled": _form(compiled_cpp, "cpu"),
        "vendor": _form(vendor),
        "reference": Form(reference.run, "the plain loop"),
        "newton": _form(newton),  # on request only
    },
)


def recur(cell: Any, x: Sequence | Lookup, state: State, lengths: Lengths | None = None) -> tuple[Sequence, State]:
    """Outputs (batch, time, hidden_size) and the state after each row's last real position.

    Of rows of a table, which come without gradients, compiled C++ reads the input projection of the table.
    """
    lengths = _ragged(x, lengths)
    if isinstance(x, Lookup):
        if asked() in ("auto", "compiled") and compiled_cpp.reads_table(cell, x, lengths):
            return compiled_cpp.run(cell, x, state, lengths)
        x = x.dense()
    return FORMS[FORMS.taken(cell, x, lengths)].run(cell, x, state, lengths)


def choose(cell: Any, x: Sequence, lengths: Lengths | None = None) -> Choice:
    """The form that `recur` would run, with the reason: which kernel it is, or why no faster one is supported."""
    return FORMS.choose(cell, x, _ragged(x, lengths))


def explain(cell: Any, x: Sequence, lengths: Lengths | None = None) -> str:
    """Which form runs and why: "vendor: oneDNN LSTM", "reference: a recorder is listening"."""
    return str(choose(cell, x, lengths))


def apart(ahead: Any, back: Any, x: Sequence, lengths: Lengths | None = None) -> str | None:
    """Why the forward and the backward cell of a bidirectional layer need two launches; None if one is enough."""
    lengths = _ragged(x, lengths)
    for cell in (ahead, back):
        if (form := choose(cell, x, lengths).form) != "generated":
            return f"the {form} form has no kernel for both directions"
    return compiled_triton.apart(ahead, back, x, lengths)


def recur_both(
    ahead: Any, back: Any, x: Sequence, states: tuple[State, State], lengths: Lengths | None = None
) -> tuple[tuple[Sequence, State], tuple[Sequence, State]]:
    """Outputs and final state of both cells, in one launch; only where `apart` gives no reason against it.

    The second cell runs from each row's last real position to its first; its outputs are in the order of the sequence.
    """
    cells, reverse = (ahead, back), (False, True)
    forward, backward = compiled_triton.run_cells(cells, x, states, _ragged(x, lengths), reverse)
    return forward, backward


def explain_both(ahead: Any, back: Any, x: Sequence, lengths: Lengths | None = None) -> str:
    """Which form runs each direction, and why; for generated kernels, whether they share a launch."""
    choices = [choose(cell, x, lengths) for cell in (ahead, back)]
    if choices[0].form != choices[1].form:
        return f"{choices[0]}; back {choices[1]}"
    if choices[0].form != "generated":
        return str(choices[0])
    problem = apart(ahead, back, x, lengths)
    return f"{choices[0]}, " + (f"two launches: {problem}" if problem else "both directions in one launch")


def forms_that_can_run(cell: Any, x: Sequence, lengths: Lengths | None = None) -> list[str]:
    """All supported forms, for tests and benchmarks."""
    return FORMS.that_can_run(cell, x, lengths)


def _ragged(x: Sequence | Lookup, lengths: Lengths | None) -> Lengths | None:
    """None if every row is full. Lengths on a GPU are not read, which would synchronise with the device."""
    if lengths is not None and lengths.device.type == "cpu" and bool((lengths == x.shape[1]).all()):
        return None
    return lengths
