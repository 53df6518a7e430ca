"""Updates: independent of micro-batching; non-finite ones are skipped."""

import copy
import math
from itertools import islice

import pytest
import torch

from elman.batches import Batch, Stream
from elman.errors import TrainingError
from elman.layers import auxiliary_loss
from elman.models import LanguageModel, StackConfig
from elman.ops.state import tensors
from elman.training import Trainer, TrainingConfig, World
from elman.training.optimizers import make_optimizer
from elman.training.update import Updater, _TotalLoss


def updated(model, batches, count=6, **settings):
    update = Updater(model, TrainingConfig.make(settings), torch.device("cpu"), World())
    for batch in islice(batches.epoch(0), count):
        update(batch, rate=0.05)
    return dict(model.named_parameters()), update


@pytest.mark.parametrize("pieces", [2, 3, 6, 7])
def test_micro_batches_equal_one_big_batch(batches, make_model, pieces):
    """Token-weighted, with rows of unequal length."""
    whole, one = updated(make_model(), batches, optimizer="sgd")
    split, many = updated(make_model(), batches, optimizer="sgd", micro_batches=pieces)
    for name in whole:
        torch.testing.assert_close(split[name], whole[name], rtol=1e-9, atol=1e-12)
    assert many.drain()[:2] == pytest.approx(one.drain()[:2], rel=1e-6)


def test_the_gradient_is_that_of_the_mean_over_tokens(batches, make_model):
    model = make_model()
    batch = next(iter(batches.epoch(0)))
    logits, _ = model(batch.inputs, None, batch.lengths)
    mask = batch.mask()
    torch.nn.functional.cross_entropy(logits[mask], batch.targets[mask]).backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    update = Updater(model, TrainingConfig.make({"clip_grad_norm": 0}), torch.device("cpu"), World())
    model.zero_grad()
    update._gradients(batch)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-9, atol=1e-12)


def test_gradients_are_clipped_to_the_norm_limit(batches, make_model):
    model = make_model()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    updated(model, batches, count=1, optimizer="sgd", clip_grad_norm=0.01)
    moved = [float((parameter - before[name]).detach().norm()) for name, parameter in model.named_parameters()]
    assert math.hypot(*moved) == pytest.approx(0.05 * 0.01, rel=1e-4)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("poison", ["loss", "gradient"])
def test_non_finite_update_is_skipped(batches, make_model, monkeypatch, optimizer, poison):
    """Weights, moments and states are unchanged, and the next finite update is applied as usual."""
    model = make_model()
    _, update = updated(model, batches, count=2, optimizer=optimizer, non_finite="skip")
    before = copy.deepcopy(model.state_dict())
    moments = {name: value.clone() for name, value in update.tensors().items() if name.startswith("optimizer")}
    total_loss = model.total_loss

    def poisoned(*arguments):
        total, state = total_loss(*arguments)
        if poison == "gradient":
            model.output_bias.register_hook(lambda gradient: gradient * torch.nan)
            return total, state
        return total * torch.nan, tuple(type(part)(*(value * torch.nan for value in part)) for part in state)

    monkeypatch.setattr(model, "total_loss", poisoned)
    update(list(batches.epoch(0))[2], rate=0.05)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    stored = update.tensors()
    assert all(torch.equal(stored[name], value) for name, value in moments.items())
    assert all(torch.isfinite(value.double()).all() for value in stored.values())
    assert update.drain()[2] == 1
    assert int(update.in_row) == 1
    monkeypatch.undo()
    if poison == "loss":
        update(list(batches.epoch(0))[2], rate=0.05)
        assert int(update.in_row) == 0
        assert not torch.equal(model.output_bias, before["output_bias"])


def test_momentum_starts_at_zero_also_if_the_first_update_is_skipped():
    """Catches torch's initialization: uninitialized memory."""
    layer = torch.nn.Linear(40, 50)
    rule = make_optimizer(layer, TrainingConfig(optimizer="sgd", momentum=0.9))
    for found, gradient in ((1.0, torch.nan), (0.0, 0.5)):
        for parameter in layer.parameters():
            parameter.grad = torch.full_like(parameter, gradient)
        rule.found_inf = torch.tensor(found)
        rule.step()
        expected = 0.0 if found else gradient
        assert all((rule.state[one]["momentum_buffer"] == expected).all() for one in layer.parameters())


@pytest.mark.parametrize(("reaction", "steps"), [("stop", 1), ("skip", 3)])
def test_training_stops_after_repeated_non_finite_updates(batches, make_model, monkeypatch, reaction, steps):
    model = make_model()

    def broken(inputs, *rest):
        return model.output_bias.sum() * torch.nan, model.initial_state(len(inputs))

    monkeypatch.setattr(model, "total_loss", broken)
    trainer = Trainer(model, batches, TrainingConfig.make({"non_finite": reaction, "max_skips": 3}))
    with pytest.raises(TrainingError, match=r"non-finite loss or gradient .*at step"):
        list(trainer)
    assert trainer.step == steps


def test_bfloat16_training_follows_full_precision(store, make_model):
    from elman.batches import Stream

    batches = Stream(store, 6, 5, seed=1)
    full, one = updated(make_model().float(), batches, optimizer="sgd")
    half, two = updated(make_model().float(), batches, optimizer="sgd", precision="bf16")
    assert two.drain()[0] == pytest.approx(one.drain()[0], rel=1e-2)
    assert all(parameter.dtype == torch.float32 for parameter in half.values())
    assert full.keys() == half.keys()


@pytest.mark.parametrize(("precision", "inside"), [("fp32", ("highest", False)), ("tf32", ("high", True))])
def test_training_restores_the_matmul_precision_of_the_process(store, make_model, monkeypatch, precision, inside):
    """Updates and validations have that of the run; what runs between two reports, or after training, has its own."""

    def settings() -> tuple[str, bool]:
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    model, seen = make_model(), []
    batch_loss = model.batch_loss
    monkeypatch.setattr(model, "batch_loss", lambda *given: seen.append(settings()) or batch_loss(*given))
    before = settings()
    config = TrainingConfig(precision=precision, max_steps=2, evaluate_every=1)
    for _ in Trainer(model, Stream(store, 4, 8, seed=1), config, validate=lambda: seen.append(settings()) or 1.0):
        assert settings() == before
    assert len(seen) >= 4  # two updates, two validations
    assert set(seen) == {inside}


def test_state_is_carried_over_unless_disabled(store, make_model):
    """Catches: a carried state that is dropped; one that is kept although every batch starts fresh."""
    batches = Stream(store, 6, 5, seed=1)
    _, carrying = updated(make_model(), batches, count=2)
    _, fresh = updated(make_model(), batches, count=2, carry_state=False)
    first, second = islice(batches.epoch(0), 2)
    assert (first.fresh, second.fresh) == (True, False)
    assert fresh.carried == [None]
    _, once = updated(make_model(), batches, count=1)
    _, after = once.model.total_loss(second.inputs, second.targets, once.carried[0])
    for kept, expected in zip(dict(tensors(carrying.carried[0])).values(), dict(tensors(after)).values(), strict=True):
        torch.testing.assert_close(kept, expected.detach())
    assert fresh.drain()[0] != pytest.approx(carrying.drain()[0], rel=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "theirs"), [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)]
)
def test_optimizers_compute_what_those_of_torch_do(optimizer, theirs):
    """Ours lack the wrappers that import torch's compiler. Seen to fail with the betas left out."""
    model = torch.nn.Linear(3, 2)
    twin = copy.deepcopy(model)
    config = TrainingConfig.make(
        {"optimizer": optimizer, "weight_decay": 0.1, "learning_rate": 0.05, "betas": [0.8, 0.95]}
    )
    decay = [{"params": [twin.weight], "weight_decay": 0.1}, {"params": [twin.bias], "weight_decay": 0.0}]
    more = {"momentum": config.momentum} if optimizer == "sgd" else {"betas": config.betas}
    pairs = (make_optimizer(model, config), model), (theirs(decay, lr=0.05, fused=True, **more), twin)
    for _ in range(3):
        for one, trained in pairs:
            one.zero_grad()
            trained(torch.arange(6.0).reshape(2, 3)).square().sum().backward()
            one.step()
    for ours, expected in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours, expected)


def test_weight_decay_applies_to_matrices_only():
    """Biases, gains and decay rates of state spaces are excluded. Catches: one group for all."""
    model = LanguageModel(StackConfig.make({"pattern": ["mamba"], "norm": "pre", "hidden_size": 8}), 11)
    optimizer = make_optimizer(model, TrainingConfig.make({"weight_decay": 0.1}))
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    by_name = {name: decay[id(parameter)] for name, parameter in model.named_parameters()}
    assert len(by_name) == len(decay) == len(list(model.parameters()))
    assert {by_name["embedding.weight"], by_name["stack.layers.0.layer.leave.weight"]} == {0.1}
    assert {by_name[name] for name in by_name if name.endswith((".log_rate", ".skip", ".bias", "_bias"))} == {0.0}


def test_balance_loss_is_trained_on_but_not_reported_as_loss():
    """Catches: nats with the extra in them; the extra not weighted by tokens."""
    model = LanguageModel(StackConfig.make({"pattern": [{"experts": {"num_experts": 4}}], "hidden_size": 8}), 11)
    words = torch.randint(11, (3, 6))
    objective, nats, _ = _TotalLoss(model)(Batch(words, words, torch.tensor([6, 2, 0]), fresh=True), None, 8)
    torch.testing.assert_close(nats, model.total_loss(words, words, None, torch.tensor([6, 2, 0]))[0].detach())
    torch.testing.assert_close(objective - nats, auxiliary_loss(model) * 8, rtol=1e-4, atol=1e-5)
    objective.backward()
    assert float(model.stack.layers[0].layer.router.weight.grad.norm()) > 0
