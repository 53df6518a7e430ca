"""Mixture of experts (MoE): a router sends each token to a few of many feed-forward networks."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.func import functional_call, vmap

from elman import config as settings
from elman.layers.base import LAYERS, at_least_float32
from elman.layers.feedforward import FeedForward, Network, Pointwise, SwiGLU
from elman.ops.host_sync import may_sync, traced
from elman.ops.taps import tap
from elman.registry import Traits
from elman.shapes import Lengths, Sequence


@LAYERS.register("experts")
class Experts(Pointwise):
    """Mixture of experts with top-k routing (Jiang et al., 2024).

    Experts have no capacity limit, so no token is dropped.
    """

    traits: ClassVar = Traits(
        idea="capacity of all experts at the cost of the few that the router selects",
        limitation="no mixing over time; unselected experts do not learn, except through the balancing loss",
        training="experts_per_token·inside/num_experts + 3·width·num_experts",
        stepping="experts_per_token·inside/num_experts + width·num_experts",
        state="0",
    )
    sites: ClassVar = {
        "router.probabilities": "routing probabilities: (time, num_experts)",
        "router.choices": "indices of the selected experts, best first: (time, experts_per_token)",
        "router.shares": "weights of the selected experts in the output; they sum to one",
    }

    class Config(settings.Config):
        num_experts: int = Field(8, ge=1)
        """Number of experts."""
        experts_per_token: int = Field(2, ge=1)
        """Number of experts per token (top-k)."""
        expert: Literal["swiglu", "feedforward"] = "swiglu"
        """Type of the experts."""
        inner_size: int = Field(0, ge=0)
        """Inner units of each expert; 0: the default of its type."""
        balance_weight: float = Field(0.01, ge=0)
        """Weight of the load balancing loss in `auxiliary_loss`."""

        @model_validator(mode="after")
        def _enough(self) -> "Experts.Config":
            if self.experts_per_token > self.num_experts:
                raise ValueError(
                    f"experts_per_token is {self.experts_per_token}, but there are {self.num_experts} experts; "
                    f"set it to {self.num_experts} or less"
                )
            return self

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        self.router = nn.Linear(input_size, config.num_experts, bias=False)
        cls: Callable[..., Network] = {"swiglu": SwiGLU, "feedforward": FeedForward}[config.expert]
        inner = cls.Config(inner_size=config.inner_size)  # type: ignore[attr-defined]
        self.experts = nn.ModuleList(cls(inner, input_size) for _ in range(config.num_experts))
        self.balance_loss: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "balance_loss": None}  # a copy has no autograd graph

    @property
    def auxiliary_loss(self) -> Tensor | None:
        """Weighted load balancing loss of the last training forward pass, to be added to the mean token loss; else
        None."""
        return None if self.balance_loss is None else self.config.balance_weight * self.balance_loss

    def run(self, x: Sequence, state: Tensor, lengths: Lengths | None) -> tuple[Sequence, Tensor]:
        """In training it also sets `balance_loss` over real positions."""
        probabilities, choices = self.route(x)
        self.balance_loss = None
        if self.training and torch.is_grad_enabled():
            self.balance_loss = balance(probabilities, choices, lengths)
        return self._mix(x, probabilities, choices), state

    def transform(self, x: Tensor) -> Tensor:
        return self._mix(x, *self.route(x))

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Routing probabilities (..., num_experts), in at least float32, and the selected experts (...,
        experts_per_token)."""
        probabilities = tap("router.probabilities", at_least_float32(self.router(x)).softmax(-1))
        choices = probabilities.topk(self.config.experts_per_token, dim=-1).indices
        return probabilities, tap("router.choices", choices)

    def _mix(self, x: Tensor, probabilities: Tensor, choices: Tensor) -> Tensor:
        shares = probabilities.gather(-1, choices)
        shares = tap("router.shares", shares / shares.sum(-1, keepdim=True))
        compute = (
            self._by_gathered_weights if traced() else self._by_sorted_tokens if may_sync() else self._by_dense_experts
        )
        outputs = compute(x, choices)
        return (outputs * shares.unsqueeze(-1).to(outputs.dtype)).sum(-2)

    def _by_sorted_tokens(self, x: Tensor, choices: Tensor) -> Tensor:
        """Sorts tokens by expert, runs each expert on its own tokens, and restores the order."""
        order = choices.flatten().argsort(stable=True)
        counts = choices.flatten().bincount(minlength=len(self.experts)).tolist()
        sorted_tokens = x.flatten(0, -2)[order // choices.shape[-1]]
        parts = zip(self.experts, sorted_tokens.split(counts), strict=True)
        outputs = torch.cat([expert.to_output(expert.inner(part)) for expert, part in parts])  # type: ignore[operator]
        return outputs[order.argsort()].view(*choices.shape, self.output_size)

    def _by_dense_experts(self, x: Tensor, choices: Tensor) -> Tensor:
        """Runs each expert on every token: more work, but no host synchronization."""
        outputs = torch.stack([expert.to_output(expert.inner(x)) for expert in self.experts], -2)  # type: ignore[operator]
        return outputs.gather(-2, choices.unsqueeze(-1).expand(*choices.shape, self.output_size))

    def _by_gathered_weights(self, x: Tensor, choices: Tensor) -> Tensor:
        """Form for tracing: gathers weights from stacked tables of all experts, independent of the routing."""
        first: Any = self.experts[0]
        names = [name for name, _ in first.named_parameters()]
        tables = {name: torch.stack([attrgetter(name)(expert) for expert in self.experts]) for name in names}
        weights = {name: table[choices.flatten()] for name, table in tables.items()}
        tokens = x.flatten(0, -2).repeat_interleave(choices.shape[-1], dim=0).unsqueeze(1)
        outputs = vmap(lambda weights, token: functional_call(first, weights, (token,))[0])(weights, tokens)
        return outputs.view(*choices.shape, self.output_size)


def balance(probabilities: Tensor, choices: Tensor, lengths: Lengths | None = None) -> Tensor:
    """Load balancing loss: experts × Σ (share of tokens sent to an expert) × (its mean probability), over real
    positions.

    As in Switch (Fedus et al., 2022) and Mixtral: `experts_per_token` if all experts are used equally, else more.
    """
    experts = probabilities.shape[-1]
    sent = nn.functional.one_hot(choices, experts).sum(-2).to(probabilities.dtype)
    if lengths is None:
        return experts * (sent.flatten(0, -2).mean(0) * probabilities.flatten(0, -2).mean(0)).sum()
    real = torch.arange(choices.shape[1], device=choices.device) < lengths.to(choices.device).unsqueeze(1)
    count = real.sum().clamp(min=1)
    real = real.unsqueeze(-1).to(probabilities.dtype)
    return experts * ((sent * real).sum((0, 1)) / count * (probabilities * real).sum((0, 1)) / count).sum()


def auxiliary_loss(model: nn.Module) -> Tensor | None:
    """Sum of the weighted auxiliary losses of all mixtures of experts in a model; None if there are none."""
    losses = [layer.auxiliary_loss for layer in model.modules() if isinstance(layer, Experts)]
    found = [loss for loss in losses if loss is not None]
    return torch.stack(found).sum() if found else None
