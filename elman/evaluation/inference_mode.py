"""Evaluation mode without gradients as a context manager that restores the mode of every module; and threads that run a
model so while the main thread prepares the next batches, or writes answers."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import nn

from elman.ops.taps import listening

SWITCH = 5e-4  # seconds until a busy thread gives up the interpreter, which torch asks for after each operation
Submit = Callable[..., "Future[Any]"]


@contextmanager
def inference_mode(model: Any, gradients: bool = False) -> Iterator[None]:
    """Evaluation mode and `torch.inference_mode`, or with `gradients` evaluation mode with autograd.

    Afterwards each module is back in its mode. Models that are no torch modules (n-grams) have none.
    """
    training = [module for module in model.modules() if module.training] if isinstance(model, nn.Module) else []
    try:
        for module in training:
            module.training = False
        with torch.enable_grad() if gradients else torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True


def device_of(model: Any) -> torch.device:
    """The device of the model's parameters or buffers; the CPU for a model without any."""
    if not isinstance(model, nn.Module):
        return torch.device("cpu")
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device


@contextmanager
def batch_threads(model: Any) -> Iterator[Submit]:
    """Begins calls with the model in evaluation mode: on a CPU in as many threads as torch would use for each.

    One after the other, at once, where a listener or a module in training mode is watched by the calling thread.
    """
    busy = any(module.training for module in model.modules()) if isinstance(model, torch.nn.Module) else True
    if busy or listening() or device_of(model).type != "cpu":
        yield partial(_at_once, model)
        return
    threads, interval = torch.get_num_threads(), sys.getswitchinterval()
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        sys.setswitchinterval(SWITCH)
        try:
            yield lambda *call: pool.submit(_call, model, *call)
        finally:
            pool.shutdown(cancel_futures=True)
            sys.setswitchinterval(interval)
            torch.set_num_threads(threads)  # which the threads have set for the libraries of the whole process


def _call(model: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    with inference_mode(model):
        return function(*arguments)


def _at_once(model: Any, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
    done: Future[Any] = Future()
    done.set_result(_call(model, function, *arguments))
    return done
