"""A captured update equals an eager one and never synchronises with the host, for every registered causal layer.

Without a GPU: the update is watched, and called where a graph would be replayed.
"""

from typing import Any

import pytest
import torch
from law_cases import SETTINGS
from torch import Tensor

from elman.batches import Batch
from elman.layers import LAYERS
from elman.models import LanguageModel, StackConfig
from elman.ops.host_sync import _RejectHostCopies
from elman.training import TrainingConfig, World, cuda_graph
from elman.training.update import Updater

VOCABULARY, ROWS, TIME, UPDATES = 11, 3, 4, 8
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "repeat_interleave", "equal"}
TOP = {"residual": True, "norm": "pre", "positions": "learned", "max_positions": 6, "tied_embeddings": False}
CASES = [
    pytest.param({"pattern": [{name: settings}]}, id=f"{name}-{number}")
    for name in LAYERS
    if LAYERS[name].causal and name != "experts"
    for number, settings in enumerate(SETTINGS.get(name, [{}]))
] + [pytest.param({"pattern": ["lstm", "swiglu"], **TOP}, id="a stack with positions")]


class Watched(_RejectHostCopies):
    """Rejects host synchronisation: reading values of a tensor, shapes that depend on values, boolean indexing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.partition(".")[0]
        masks = name in ("index", "index_put_") and any(one is not None and one.dtype == torch.bool for one in args[1])
        if name in WAITING or masks:
            raise RuntimeError(f"{func} needs the host")
        return super().__torch_dispatch__(func, types, args, kwargs)


class Replayed:
    made = 0

    def __init__(self, step: Any, stream: None, pool: None):
        Replayed.made += 1
        self.step = step

    def replay(self) -> None:
        with Watched():
            self.step()


def trained(settings: dict[str, Any], device: str = "cpu", **training: Any) -> tuple[Updater, list[Tensor]]:
    torch.manual_seed(0)
    model = LanguageModel(StackConfig.make({"hidden_size": 12, **settings}), VOCABULARY).to(device)
    updater = Updater(model, TrainingConfig.make({"captured": False, **training}), torch.device(device), World())
    torch.manual_seed(1)
    for number in range(UPDATES):
        words = torch.randint(VOCABULARY, (ROWS, TIME + 1))
        updater(Batch(words[:, :-1], words[:, 1:], None, fresh=number == 0), 0.0625)
    return updater, [parameter.detach().clone() for parameter in model.parameters()]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graph, "DEVICES", ("cpu",))
    monkeypatch.setattr(cuda_graph, "graph_of", Replayed)
    monkeypatch.setattr(Replayed, "made", 0)


@pytest.mark.parametrize("settings", CASES)
def test_no_layer_synchronises_with_the_host_in_an_update(stand_in: None, settings: dict[str, Any]) -> None:
    """The weights equal those trained without a graph, as far as a layer computes the same without synchronisation."""
    updater, ours = trained(settings, captured=True)
    assert updater.captured is not None
    assert not updater.captured.failed
    assert Replayed.made == 1
    _, theirs = trained(settings)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("settings", CASES)
def test_a_cuda_graph_trains_every_layer_as_torch_does(settings: dict[str, Any]) -> None:
    updater, ours = trained(settings, "cuda", captured=True, optimizer="sgd")
    assert updater.captured is not None
    assert updater.captured.graphs
    _, theirs = trained(settings, "cuda", optimizer="sgd")
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_no_optimizer_synchronises_with_the_host_in_an_update(stand_in: None, precision: str, optimizer: str) -> None:
    trained({"dropout": 0.5, "weight_dropout": 0.5}, captured=True, precision=precision, optimizer=optimizer)
    assert Replayed.made == 1


def test_the_check_detects_host_synchronisation() -> None:
    numbers = torch.tensor([1.0, 2.0])
    for waits in (lambda: float(numbers[0]), lambda: numbers[numbers > 1], lambda: torch.tensor([1.0]) + numbers):
        with Watched(), pytest.raises(RuntimeError, match="host"):
            waits()
