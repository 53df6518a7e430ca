"""Laws with shapes and types checked at every call, in a process of its own; prints what failed, by name, as JSON.

The checks are compiled into elman when it is imported, so they cannot be switched on in a process that tests otherwise.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

os.environ |= {"ELMAN_SHAPES": "1", "HYPOTHESIS_PROFILE": "default"}
sys.path.append(str(Path(__file__).parent / "laws"))

import conftest  # noqa: F401  (installs the checks)
import torch
from jaxtyping import TypeCheckError
from law_cases import cases
from test_layer_laws import test_law
from test_model_laws import MODELS

from elman.layers import LAYERS


def wrong_shapes_and_types_are_refused() -> None:
    layer = LAYERS["lstm"](LAYERS["lstm"].Config(hidden_size=4), 3)
    x, state = torch.zeros(2, 5, 3), layer.initial_state(2)
    assert layer(x)[0].shape == (2, 5, 4), "widths may differ"
    wrong: dict[str, Callable[[], object]] = {
        "one step": lambda: layer(x[:, 0]),
        "a sequence": lambda: layer.step(x, state),
        "integers": lambda: layer(x.long()),
        "too many lengths": lambda: layer(x, state, torch.tensor([5, 5, 5])),
        "lengths that are no integers": lambda: layer(x, state, torch.tensor([5.0, 5.0])),
    }
    for name, call in wrong.items():
        try:
            call()
        except TypeCheckError:
            continue
        raise AssertionError(f"not refused: {name}")


def problem(check: Callable[..., None], **arguments: object) -> str:
    try:
        check(**arguments)
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    found = {"refusal": problem(wrong_shapes_and_types_are_refused)}
    for case in [*cases(), *MODELS]:
        found[str(case)] = "".join(problem(test_law, case=case, law=law) for law in ("agreement", "initial state"))
    print(json.dumps(found))
