"""Mixture of experts: routing, no dropped tokens, and a balance loss without padding."""

import copy

import pytest
import torch
from torch import Tensor, nn

from elman.errors import ConfigError
from elman.layers import LAYERS
from elman.layers.experts import Experts, auxiliary_loss, balance
from elman.ops import taps
from elman.ops.host_sync import without_host_sync


def build(width: int = 6, **settings) -> Experts:
    torch.manual_seed(0)
    return Experts(Experts.Config.make(settings), width)


def by_hand(layer: Experts, token: Tensor) -> Tensor:
    """One token: softmax over the chosen logits, as in Mixtral."""
    best = layer.router(token).topk(layer.config.experts_per_token)
    shares = best.values.softmax(-1)
    outputs = [layer.experts[i].transform(token) for i in best.indices]
    return sum(share * output for share, output in zip(shares, outputs, strict=True))


@pytest.mark.parametrize("expert", ["swiglu", "feedforward"])
@pytest.mark.parametrize("chosen", [1, 2, 5])
def test_output_is_the_weighted_sum_of_the_routed_experts(expert: str, chosen: int) -> None:
    """Catches: outputs not put back in order; shares not normed over the chosen."""
    layer = build(num_experts=5, experts_per_token=chosen, expert=expert)
    x = torch.randn(3, 4, 6)
    expected = torch.stack([by_hand(layer, token) for token in x.flatten(0, 1)]).view_as(x)
    torch.testing.assert_close(layer(x)[0], expected)


def test_no_token_is_dropped_when_all_route_to_one_expert() -> None:
    layer = build(num_experts=4, experts_per_token=1)
    x = torch.randn(2, 50, 6)
    with taps.edit({"router.choices": 3}), taps.record("router.*") as seen:
        outputs, _ = layer(x)
    torch.testing.assert_close(outputs, layer.experts[3].transform(x))
    assert (seen["router.choices"] == 3).all()
    torch.testing.assert_close(seen["router.shares"], torch.ones(2, 50, 1))
    torch.testing.assert_close(seen["router.probabilities"].sum(-1), torch.ones(2, 50))


def test_balance_loss_is_lowest_for_uniform_routing() -> None:
    even = torch.full((1, 8, 4), 0.25)
    in_turn = torch.arange(16).view(1, 8, 2) % 4
    assert balance(even, in_turn) == pytest.approx(2.0)
    one = torch.tensor([1.0, 0, 0, 0]).expand(1, 8, 4)
    assert balance(one, torch.zeros(1, 8, 1, dtype=torch.long)) == pytest.approx(4.0)


def test_balance_loss_ignores_padding() -> None:
    """Catches: padding counted."""
    layer = build(num_experts=4).train()
    x, lengths = torch.randn(2, 6, 6), torch.tensor([4, 0])
    layer(x, None, lengths)
    padded = layer.balance_loss
    layer(x[:1, :4])
    torch.testing.assert_close(padded, layer.balance_loss)
    layer(x, None, torch.tensor([0, 0]))
    assert layer.balance_loss == 0


def test_trainer_collects_weighted_balance_losses_of_all_mixtures() -> None:
    first, second = build(balance_weight=0.5), build(balance_weight=0.25)
    model = nn.ModuleList([first, nn.ModuleList([second])])
    assert auxiliary_loss(model) is None
    x = torch.randn(2, 6, 6)
    first(x), second(x)
    loss = auxiliary_loss(model)
    torch.testing.assert_close(loss, 0.5 * first.balance_loss + 0.25 * second.balance_loss)
    loss.backward()
    assert first.router.weight.grad.abs().sum() > 0
    assert copy.deepcopy(model)[0].balance_loss is None
    model.eval()
    first(x), second(x)
    assert auxiliary_loss(model) is None


def test_training_on_the_balance_loss_evens_out_routing() -> None:
    layer = build(num_experts=4, experts_per_token=1)
    x = torch.randn(1, 200, 6) + 2
    rule = torch.optim.Adam(layer.parameters(), 0.05)
    for _ in range(60):
        layer(x)
        rule.zero_grad()
        layer.balance_loss.backward()
        rule.step()
    first = build(num_experts=4, experts_per_token=1)
    first(x), layer(x)
    assert layer.balance_loss < 1.1 < first.balance_loss


def test_invalid_expert_counts_are_rejected() -> None:
    with pytest.raises(ConfigError, match="experts_per_token is 3, but there are 2 experts; set it to 2 or less"):
        LAYERS["experts"].Config.make({"num_experts": 2, "experts_per_token": 3})


def test_dense_routing_without_host_sync_gives_the_same_output() -> None:
    """Catches: outputs taken by the order of choices."""
    layer = build(num_experts=5, experts_per_token=3)
    x = torch.randn(7, 6)
    expected = layer.transform(x)
    with without_host_sync():
        torch.testing.assert_close(layer.transform(x), expected)
