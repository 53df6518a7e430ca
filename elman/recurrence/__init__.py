"""Running a cell over a sequence: one definition, several forms, and a dispatcher that can say which one and why.

`recur(cell, x, state, lengths)` takes the first form that can run and that measurements favour; `explain` says which.
Two cells that read one sequence from both ends may share a launch: `apart` says why not, `recur_both` runs them.
"""

from typing import Any

from elman.ops.forms import Choice, Form, Forms, asked, never, using
from elman.recurrence import compiled_cpp, compiled_triton, newton, reference, vendor
from elman.recurrence.vendor import VendorCall
from elman.shapes import Lengths, Sequence, State

__all__ = [
    "FORMS",
    "Choice",
    "Form",
    "VendorCall",
    "apart",
    "asked",
    "choose",
    "explain",
    "explain_both",
    "forms_that_can_run",
    "recur",
    "recur_both",
    "using",
]


FORMS = Forms(
    "the recurrence",
    {
        "generated": Form(
            compiled_triton.run, compiled_triton.obstacle, compiled_triton.drawback, compiled_triton.title, "cuda"
        ),
        "compiled": Form(compiled_cpp.run, compiled_cpp.obstacle, compiled_cpp.drawback, compiled_cpp.title, "cpu"),
        "vendor": Form(vendor.run, vendor.obstacle, vendor.drawback, vendor.title),
        "reference": Form(reference.run, never, never, lambda *given: "the plain loop"),
        "newton": Form(newton.run, newton.obstacle, newton.drawback, newton.title),  # behind it: only on request
    },
)


def recur(cell: Any, x: Sequence, state: State, lengths: Lengths | None = None) -> tuple[Sequence, State]:
    """Outputs (batch, time, hidden_size) and the state after each row's last real position."""
    lengths = _unequal(x, lengths)
    return FORMS[FORMS.taken(cell, x, lengths)].run(cell, x, state, lengths)


def choose(cell: Any, x: Sequence, lengths: Lengths | None = None) -> Choice:
    """The form that `recur` would take here, with the reason: whose kernel it is, or why no faster one runs."""
    return FORMS.choose(cell, x, _unequal(x, lengths))


def explain(cell: Any, x: Sequence, lengths: Lengths | None = None) -> str:
    """Which form runs and why: "vendor: oneDNN LSTM", "reference: a recorder is listening"."""
    return str(choose(cell, x, lengths))


def apart(ahead: Any, back: Any, x: Sequence, lengths: Lengths | None = None) -> str | None:
    """Why two cells over one sequence, the second from its end, must run one after the other; None if both at once."""
    lengths = _unequal(x, lengths)
    for cell in (ahead, back):
        if (form := choose(cell, x, lengths).form) != "generated":
            return f"the {form} form has no kernel for both directions"
    return compiled_triton.apart(ahead, back, x, lengths)


def recur_both(
    ahead: Any, back: Any, x: Sequence, states: tuple[State, State], lengths: Lengths | None = None
) -> tuple[tuple[Sequence, State], tuple[Sequence, State]]:
    """What each cell gives, in one launch, where nothing keeps them `apart`.

    The second begins at each row's last real position; its outputs stand in the order of the sequence.
    """
    there, here = compiled_triton.run_both((ahead, back), x, states, _unequal(x, lengths))
    return there, here


def explain_both(ahead: Any, back: Any, x: Sequence, lengths: Lengths | None = None) -> str:
    """Which form runs each of two directions, and why; of generated kernels, whether they share a launch."""
    choices = [choose(cell, x, lengths) for cell in (ahead, back)]
    if choices[0].form != choices[1].form:
        return f"{choices[0]}; back {choices[1]}"
    if choices[0].form != "generated":
        return str(choices[0])
    problem = apart(ahead, back, x, lengths)
    return f"{choices[0]}, " + (f"two launches: {problem}" if problem else "both directions in one launch")


def forms_that_can_run(cell: Any, x: Sequence, lengths: Lengths | None = None) -> list[str]:
    """What tests and benchmarks compare."""
    return FORMS.that_can_run(cell, x, lengths)


def _unequal(x: Sequence, lengths: Lengths | None) -> Lengths | None:
    """Nothing if every row is full; lengths on a GPU are not asked, since the answer would have to be waited for."""
    if lengths is not None and lengths.device.type == "cpu" and bool((lengths == x.shape[1]).all()):
        return None
    return lengths
