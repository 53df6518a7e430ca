"""Batches run in threads without gradients, and leave torch and the interpreter as they were."""

import sys
import threading

import pytest
import torch
from torch import nn

from elman.evaluation.inference_mode import batch_threads
from elman.ops import taps


def where(x):
    return threading.current_thread(), torch.is_grad_enabled(), torch.get_num_threads(), x


def test_calls_run_in_threads_with_one_thread_of_torch_each():
    before = torch.get_num_threads(), sys.getswitchinterval()
    with batch_threads(nn.Linear(2, 2).eval()) as begin:
        thread, gradients, threads, value = begin(where, 7).result()
        with pytest.raises(ZeroDivisionError):
            begin(lambda: 1 / 0).result()
    assert (gradients, threads, value) == (False, 1, 7)
    assert thread is not threading.main_thread()
    assert (torch.get_num_threads(), sys.getswitchinterval()) == before
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("reason", ["training", "recording"])
def test_what_belongs_to_the_calling_thread_runs_there(reason):
    model = nn.Linear(2, 2).train(reason == "training")
    with batch_threads(model) as begin:
        assert (begin(where, 7).result()[0] is threading.main_thread()) == (reason == "training")
    if reason == "recording":
        with taps.record("a") as seen, batch_threads(model) as begin:
            begin(lambda: taps.tap("a", torch.ones(1, 1))).result()
        assert seen["a"].tolist() == [[1]]
    assert model.training == (reason == "training")
