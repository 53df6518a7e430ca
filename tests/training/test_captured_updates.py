"""Captured updates (CUDA graphs): bit-identical to eager ones, without host synchronization, with reported obstacles.

Without a GPU a stand-in replaces the graph: creating it runs the update once and restores all values, because a
capture computes nothing; replaying calls the update, which works on the same buffers.

Catches: states, norm, tokens or rate not copied to their buffers or back; a replay for another batch shape; sums or
counts in other memory; a graph kept after a restore; a scaler or states changed by a failed capture; an ignored kernel
timeout; an ignored recorder; states selected by the host.
"""

import copy
import warnings

import pytest
import torch
from torch import nn

from elman.batches import Documents, Stream
from elman.errors import TrainingError
from elman.models import LanguageModel, StackConfig
from elman.ops import kernel_timeout
from elman.ops.state import map_state
from elman.ops.taps import record
from elman.training import Trainer, TrainingConfig, World, cuda_graph
from elman.training.cuda_graph import WARMUP_UPDATES, obstacle
from elman.training.update import Updater

CPU = torch.device("cpu")
CASES = {
    "sgd": {"optimizer": "sgd"},
    "momentum": {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.125},
    "adam": {"optimizer": "adam"},
    "adamw": {"weight_decay": 0.125},
    "bf16": {"precision": "bf16"},
    "bf16 sgd": {"precision": "bf16", "optimizer": "sgd"},
    "fp16": {"precision": "fp16"},
    "fp16 sgd": {"precision": "fp16", "optimizer": "sgd"},
    "clipped": {"clip_grad_norm": 0.01},
    "unclipped": {"clip_grad_norm": 0},
    "moving average": {"averaging": "moving", "averaging_steps": 4},
    "no state": {"carry_state": False},
}


class Replayed:
    """Stands in for a CUDA graph."""

    def __init__(self, step, stream, pool):
        assert stream is pool is None
        (updater,) = step.args
        self.own = step.func.__self__
        assert all(group.get("capturable", True) for group in updater.optimizer.param_groups)
        before = {name: value.clone() for name, value in numbers(updater, self.own).items()}
        dice = torch.get_rng_state()
        step()
        torch.set_rng_state(dice)
        updater.norm = updater.norm * torch.nan
        updater.carried = [state and map_state(lambda part: part * torch.nan, state) for state in updater.carried]
        with torch.no_grad():
            for name, value in numbers(updater, self.own).items():
                if "carried" not in name:
                    value.copy_(before[name])
        self.step, self.replays, self.buffers = step, 0, buffers(updater, self.own)

    def replay(self):
        self.replays += 1
        (updater,) = self.step.args
        assert buffers(updater, self.own) == self.buffers
        names = updater.carried, updater.norm
        self.step()
        updater.carried, updater.norm = names
        assert buffers(updater, self.own) == self.buffers


def buffers(updater, own):
    """Addresses that a graph would contain."""
    buffers = {**numbers(updater, own), "rate": updater.captured.rate, "lr": updater.optimizer.param_groups[0]["lr"]}
    return {
        name: value.data_ptr() for name, value in buffers.items() if "carried" not in name and "average" not in name
    }


def numbers(updater, own):
    """All values that an update changes in place; `own`: what only updates of its kind do."""
    found = {**updater.model.state_dict(), **updater.tensors()}
    found |= {f"place.{name}": value for name, value in enumerate([own.state, own.norm])}
    if updater.scaler.is_enabled():
        found |= {"scale": updater.scaler._scale, "growth": updater.scaler._growth_tracker}
    flat = {}
    for name, value in found.items():
        parts = [value] if isinstance(value, torch.Tensor) or value is None else [p for part in value for p in part]
        flat |= {f"{name}.{number}": part for number, part in enumerate(parts) if part is not None}
    return {name: value for name, value in flat.items() if "rng" not in name}


def replays(updater):
    """Number of replays of each graph; not counted on a GPU."""
    return [getattr(buffers.graph, "replays", None) for buffers in updater.captured.graphs.values()]


@pytest.fixture
def stand_in(monkeypatch):
    monkeypatch.setattr(cuda_graph, "DEVICES", ("cpu",))
    monkeypatch.setattr(cuda_graph, "graph_of", Replayed)
    cuda_graph.warn_of_eager_steps.cache_clear()


@pytest.fixture
def stream(store):
    """Its last batch is shorter than the others."""
    return Stream(store, 6, 5, seed=1)


def updater_of(model, **settings):
    return Updater(model, TrainingConfig.make({"captured": False, **settings}), CPU, World())


def trained(updater, batches, poisoned=(), epochs=3):
    """All numbers after each of some updates, the rate falling; poisoned ones meet a weight that is not a number."""
    found, number = [], 0
    for epoch in range(epochs):
        for batch in batches.epoch(epoch):
            bias = updater.model.output_bias.data
            kept = bias.clone()
            if number in poisoned:
                bias[3] = torch.nan
            updater(batch, rate=0.0625 * 0.5 ** (number // 8))
            if number in poisoned:
                bias.copy_(kept)
            stored = {**updater.model.state_dict(), **updater.tensors(), "norm": updater.norm}
            found.append(copy.deepcopy(stored | {"facts": updater.facts()}))
            number += 1
    return found


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert one.pop("facts") == other.pop("facts")
        assert one.keys() == other.keys()
        different = [name for name in one if not torch.equal(one[name].nan_to_num(-1), other[name].nan_to_num(-1))]
        assert not different, f"update {number}"


@pytest.mark.slow
@pytest.mark.parametrize("poisoned", [(), (6, 7, 12)], ids=["good", "bad"])
@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_captured_updates_equal_eager_updates(stand_in, stream, make_model, settings, poisoned):
    ours = updater_of(make_model().float(), captured=True, **settings)
    theirs = updater_of(make_model().float(), **settings)
    assert_same(trained(ours, stream, poisoned), trained(theirs, stream, poisoned))
    assert sum(replays(ours)) >= 12
    assert not any(group.get("capturable") for group in ours.optimizer.param_groups)
    assert ours.drain() == theirs.drain()


def test_captured_dropout_uses_the_same_random_numbers(stand_in, stream, make_model):
    shares = {"dropout": 0.5, "weight_dropout": 0.5, "embedding_dropout": 0.25}
    assert_same(
        trained(updater_of(make_model(**shares), captured=True), stream),
        trained(updater_of(make_model(**shares)), stream),
    )


@pytest.mark.slow
@pytest.mark.parametrize("cut", [5, 9, 20])
@pytest.mark.parametrize("settings", [{"optimizer": "sgd", "momentum": 0.5}, {"averaging": "moving"}], ids=str)
def test_resumed_run_equals_an_uninterrupted_one(stand_in, stream, make_model, settings, cut):
    def trainer(model):
        config = {"captured": True, "max_epochs": 3, "log_every": 2, "save_every": cut, **settings}
        return Trainer(model, stream, TrainingConfig.make(config))

    whole = trainer(make_model())
    stored = None
    for report in whole:
        if report.kind == "save" and stored is None:
            stored = copy.deepcopy((whole.model.state_dict(), whole.tensors(), whole.facts()))
    weights, tensors, facts = stored
    resumed = trainer(make_model(seed=1))
    resumed.model.load_state_dict(weights)
    assert resumed.restore(tensors, facts)
    list(resumed)
    assert facts["step"] == cut
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


@pytest.mark.slow
def test_graph_is_discarded_when_optimizer_state_is_replaced(stand_in, stream, make_model):
    ours, theirs = updater_of(make_model(), captured=True), updater_of(make_model())
    for updater in (ours, theirs):
        trained(updater, stream, epochs=1)
        updater.restore(copy.deepcopy(updater.tensors()), updater.facts())
    assert not replays(ours)
    assert_same(trained(ours, stream), trained(theirs, stream))


def test_failed_capture_restores_all_state(stand_in, stream, make_model, monkeypatch):
    """In the midst of an update: the scaler has seen its gradients."""

    def failing(step, stream, pool):
        Replayed(step, stream, pool)
        step.args[0].scaler.scale(torch.ones(()))
        step.args[0].model.output_bias.grad = torch.ones_like(step.args[0].model.output_bias)
        step.args[0].scaler.unscale_(step.args[0].optimizer)
        try:
            raise RuntimeError("operation not permitted\nsomewhere")
        finally:
            raise RuntimeError("ending the capture fails too")

    monkeypatch.setattr(cuda_graph, "graph_of", failing)
    ours = updater_of(make_model().float(), captured=True, precision="fp16")
    with pytest.warns(UserWarning, match="more slowly: capturing one failed: operation not permitted$"):
        found = trained(ours, stream)
    assert ours.captured.failed
    assert_same(found, trained(updater_of(make_model().float(), precision="fp16"), stream))


def test_recorded_updates_are_not_captured(stand_in, stream, make_model):
    updater = updater_of(make_model(), captured=True)
    with record("embedding"):
        trained(updater, stream, epochs=1)
    assert not replays(updater)


@pytest.mark.slow
def test_ragged_batches_run_eagerly_with_one_note(stand_in, store, make_model):
    documents = Documents(store, 6, 5, seed=1)
    ours = updater_of(make_model(), captured=True)
    with pytest.warns(UserWarning, match="rows differ in length") as told:
        found = trained(ours, documents)
    assert len(told) == 1
    assert_same(found, trained(updater_of(make_model()), documents))


class Counting(nn.Linear):
    """A user's layer with Python side effects, which a graph would not repeat."""


@pytest.mark.parametrize("settings", [{}, {"micro_batches": 2}])
def test_automatic_capture_is_silent_and_for_built_in_layers_only(stand_in, stream, make_model, settings):
    """Catches: layers of others too; a word where it cannot be."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = updater_of(make_model(), captured=None, **settings)
        found = trained(ours, stream)
        other = make_model()
        other.more = Counting(2, 2)
        assert updater_of(other, captured=None, **settings).captured is None
        assert updater_of(make_model(), captured=False, **settings).captured is None
    assert (ours.captured is None) == bool(settings)
    assert settings or replays(ours)
    assert_same(found, trained(updater_of(make_model(), **settings), stream))


def test_low_memory_disables_automatic_capture(stand_in, stream, make_model, monkeypatch):
    monkeypatch.setattr(cuda_graph, "_enough_memory", lambda device: False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours, asked = (updater_of(make_model(), captured=given) for given in (None, True))
        assert_same(trained(ours, stream), trained(asked, stream))
    assert not replays(ours)
    assert replays(asked)


def test_automatic_capture_has_no_note_for_ragged_batches(stand_in, store, make_model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(updater_of(make_model(), captured=None), Documents(store, 6, 5, seed=1), epochs=1)


def test_kernel_timeout_is_raised_before_the_next_replay(stand_in, stream, make_model, monkeypatch):
    monkeypatch.setattr(kernel_timeout, "ALARMS", {})
    updater = updater_of(make_model(), captured=True)
    trained(updater, stream, epochs=1)
    kernel_timeout.of(CPU)[1].fill_(1)
    with pytest.raises(TrainingError, match="timed out"):
        trained(updater, stream, epochs=1)
    assert not replays(updater)


def test_the_graph_is_made_after_some_updates_of_one_kind(stand_in, stream, make_model):
    updater = updater_of(make_model(), captured=True)
    graphs = []
    for batch in stream.epoch(0):
        updater(batch, 0.1)
        graphs.append(replays(updater))
    # the first batch starts with a fresh state, the last one is shorter
    assert graphs == [[]] * (WARMUP_UPDATES + 1) + [[1], [2], [3], [3]]


@pytest.mark.slow
def test_each_length_gets_a_graph_of_its_own(stand_in, store, make_model, monkeypatch):
    """The state goes from one to the other. Catches: words of one length in another's place; a state that stays."""
    monkeypatch.setattr(cuda_graph, "MAX_GRAPHS", 3)
    stream = Stream(store, 3, 6, seed=1, jitter=True)
    lengths = {batch.inputs.shape[1] for epoch in range(6) for batch in stream.epoch(epoch)}
    ours, theirs = updater_of(make_model(), captured=True, jitter=True), updater_of(make_model(), jitter=True)
    assert_same(trained(ours, stream, epochs=6), trained(theirs, stream, epochs=6))
    assert len(lengths) > 3 == len(replays(ours))
    assert min(replays(ours)) > 1


@pytest.mark.parametrize(
    ("reason", "settings", "model"),
    [
        ("several pieces", {"micro_batches": 2}, {}),
        ("each expert gets", {}, {"pattern": [{"experts": {"num_experts": 2}}]}),
    ],
)
def test_obstacle_to_capture_is_reported_once(stand_in, make_model, reason, settings, model):
    with pytest.warns(UserWarning, match=f"without a CUDA graph, more slowly: .*{reason}"):
        updater = updater_of(make_model(**model), captured=True, **settings)
    assert updater.captured is None
    assert updater_of(make_model(**model), captured=True, **settings).captured is None  # in silence


def test_other_obstacles(make_model):
    updater = updater_of(make_model())
    assert obstacle(updater) == "the model is on cpu"
    updater.device = torch.device("cuda")
    assert obstacle(updater) == ""
    updater.world = World(0, 2)
    assert obstacle(updater) == "several processes exchange gradients"
    updater.world = World()
    updater.optimizer.param_groups[0]["fused"] = False
    assert obstacle(updater) == "the optimizer has no fused form here"
    updater.model.prediction = "masked"
    assert "masked" in obstacle(updater)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_gpu_graph_updates_equal_eager_updates(stream, store, settings):
    """The same kernels give the same values, dropout included."""
    found = []
    for asked in (True, False):
        torch.manual_seed(0)
        config = StackConfig.make({"pattern": ["lstm"], "hidden_size": 64, "num_layers": 2, "dropout": 0.25})
        model = LanguageModel(config, store.vocab_size).cuda()
        updater = Updater(model, TrainingConfig.make({"captured": asked, **settings}), torch.device("cuda"), World())
        torch.cuda.manual_seed(1)
        found.append(trained(updater, stream, poisoned=(6, 12)))
        if asked:
            assert replays(updater)
            assert not updater.captured.failed
    assert_same(*found)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_failed_gpu_capture_keeps_rng_state_and_weights(stream, store, monkeypatch):
    """The model synchronizes with the device, but only during capture."""
    found = []
    for asked in (True, False):
        torch.manual_seed(0)
        model = LanguageModel(StackConfig.make({"hidden_size": 32, "dropout": 0.5}), store.vocab_size).cuda()
        whole = model.total_loss

        def waiting(*given, whole=whole):
            total, state = whole(*given)
            if torch.cuda.is_current_stream_capturing():
                total.item()
            return total, state

        monkeypatch.setattr(model, "total_loss", waiting)
        config = TrainingConfig.make({"captured": asked, "precision": "fp16"})
        updater = Updater(model, config, torch.device("cuda"), World())
        torch.cuda.manual_seed(1)
        if asked:
            cuda_graph.warn_of_eager_steps.cache_clear()
            with pytest.warns(UserWarning, match="capturing one failed"):
                found.append(trained(updater, stream))
            assert updater.captured.failed
            torch.cuda.empty_cache()  # which would complain about a capture that has not ended
        else:
            found.append(trained(updater, stream))
    assert_same(*found)
