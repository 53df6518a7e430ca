"""Threads that run a model on batches while the main thread prepares the next ones, or writes answers."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from elman.evaluation.inference_mode import device_of, inference_mode
from elman.ops.taps import listening

SWITCH = 5e-4  # seconds until a busy thread gives up the interpreter, which torch asks for after each operation
Submit = Callable[..., "Future[Any]"]


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
