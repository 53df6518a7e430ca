"""Inference before training: no layer, in any form, keeps a tensor of inference mode that training would then meet."""

import pytest
import torch
from inference_tensors import none_kept
from law_cases import Case, cases
from triton_interpreter import DEVICE

from elman.layers import SequenceLayer
from elman.ops.state import tensors

CASES = [*cases(), *cases(causal=False)]
TIME = 6


def run(layer: SequenceLayer, x: torch.Tensor) -> list[torch.Tensor]:
    """Outputs and states of rows of equal and unequal lengths, and of a step."""
    found = []
    for lengths in (None, torch.tensor([TIME, 2], device=x.device)):
        y, state = layer(x, None, lengths)
        found += [y[:, :2], *(part for _, part in tensors(state))]
    if layer.causal:
        y, state = layer.step(x[:, 0], layer.initial_state(2))
        found += [y, *(part for _, part in tensors(state))]
    return found


def infer_then_train(case: Case, dtype: torch.dtype = torch.float64, device: str = "cpu") -> None:
    layer, place = case.layer().to(device, dtype), {"dtype": dtype, "device": device}
    for training in (False, True):  # caches are separate
        layer.train(training)
        with torch.inference_mode():
            run(layer, torch.randn(2, TIME, 3, **place))
    found = run(layer, torch.randn(2, TIME, 3, **place, requires_grad=True))
    sum(one.sum() for one in found if one.requires_grad).backward()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.sub_(parameter.grad if parameter.grad is not None else 0)


def test_every_layer_trains_after_inference_and_keeps_no_tensor_of_it():
    """Catches a mask, a position code or a workspace that is made on first use and kept."""
    with none_kept():
        for case in CASES:
            with case.running():
                infer_then_train(case)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["compiled", "generated"])
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_compiled_cells_train_after_inference(name, form, triton_interpreter):
    """Catches the timeout flag of the generated kernels made by inference."""
    case = Case(name, {}, form)
    with none_kept(), case.running():
        infer_then_train(case, torch.float32, DEVICE if form == "generated" else "cpu")
