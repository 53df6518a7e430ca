"""Tensors that were made under `torch.inference_mode`: autograd cannot save them, nor can training update them."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def none_kept() -> Iterator[None]:
    """No tensor of inference that is made in the block is still held after it, by a cache for example."""
    before = {id(one) for one in _inference_tensors()}
    yield
    assert not [one.shape for one in _inference_tensors() if id(one) not in before]


def _inference_tensors() -> list[torch.Tensor]:
    gc.collect()
    return [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor) and one.is_inference()]
