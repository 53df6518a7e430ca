"""The timeout flag of kernels whose blocks wait for each other: usable by training and by inference, in any order."""

import pytest
import torch

from elman.errors import TrainingError
from elman.ops import kernel_timeout

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def no_flags_yet(monkeypatch):
    monkeypatch.setattr(kernel_timeout, "ALARMS", {})


@pytest.mark.parametrize("first", [True, False], ids=["inference first", "training first"])
def test_inference_and_training_share_the_flag_in_any_order(first):
    for inference in (first, not first):
        with torch.inference_mode(inference):
            kernel_timeout.of(CPU)[0].zero_()
            kernel_timeout.send(CPU)
            kernel_timeout.check(CPU)


def test_a_set_flag_is_raised_once():
    kernel_timeout.of(CPU)[0].fill_(1)
    kernel_timeout.send(CPU)
    with pytest.raises(TrainingError, match="timed out"):
        kernel_timeout.check(CPU)
    kernel_timeout.check(CPU)
