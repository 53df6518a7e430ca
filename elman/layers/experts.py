"""Mixture of experts: a router sends each token through a few of many feed-forward networks."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.func import functional_call, vmap

from elman import config as settings
from elman.layers.base import LAYERS
from elman.layers.feedforward import FeedForward, Network, Pointwise, SwiGLU
from elman.ops.host_sync import may_sync, traced
from elman.ops.taps import tap
from elman.registry import Traits
from elman.shapes import Lengths, Sequence


@LAYERS.register("experts")
class Experts(Pointwise):
    """Each token is worked on by the few experts that a router chooses (Jiang et al., 2024).

    No expert is ever full: no token is dropped.
    """

    traits: ClassVar = Traits(
        idea="knows as much as all experts, and costs as much as the few that a router chooses",
        limitation="it sees no other position; experts that nobody chooses learn nothing but for the balance loss",
        training="experts_per_token·inside/num_experts + 3·width·num_experts",
        stepping="experts_per_token·inside/num_experts + width·num_experts",
        state="0",
    )
    sites: ClassVar = {
        "router.probabilities": "how much the router favours each expert: (time, num_experts)",
        "router.choices": "numbers of the chosen experts, the best first: (time, experts_per_token)",
        "router.shares": "share of each chosen expert in the output; they sum to one",
    }

    class Config(settings.Config):
        num_experts: int = Field(8, ge=1)
        """How many networks there are."""
        experts_per_token: int = Field(2, ge=1)
        """How many of them work on each token."""
        expert: Literal["swiglu", "feedforward"] = "swiglu"
        """What an expert is."""
        inner_size: int = Field(0, ge=0)
        """Inner units of each expert; 0 takes what its kind does."""
        balance_weight: float = Field(0.01, ge=0)
        """Weight of the balance loss in `auxiliary_loss`."""

        @model_validator(mode="after")
        def _enough(self) -> "Experts.Config":
            if self.experts_per_token > self.num_experts:
                raise ValueError(
                    f"experts_per_token is {self.experts_per_token}, but there are {self.num_experts} experts; "
                    f"set it to {self.num_experts} or less"
                )
            return self

    def __init__(self, config: Config, input_size: int):
        super().__init__()
        self.config = config
        self.input_size = self.output_size = input_size
        self.router = nn.Linear(input_size, config.num_experts, bias=False)
        kind: Callable[..., Network] = {"swiglu": SwiGLU, "feedforward": FeedForward}[config.expert]
        inner = kind.Config(inner_size=config.inner_size)  # type: ignore[attr-defined]
        self.experts = nn.ModuleList(kind(inner, input_size) for _ in range(config.num_experts))
        self.balance_loss: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "balance_loss": None}  # a copy has no graph to go back through

    @property
    def auxiliary_loss(self) -> Tensor | None:
        """To be added to the mean loss of a token, after a forward pass in training; else nothing."""
        return None if self.balance_loss is None else self.config.balance_weight * self.balance_loss

    def forward(
        self, x: Sequence, state: Tensor | None = None, lengths: Lengths | None = None
    ) -> tuple[Sequence, Tensor]:
        """Also leaves `balance_loss` of the real positions, in training."""
        probabilities, choices = self.route(x)
        self.balance_loss = None
        if self.training and torch.is_grad_enabled():
            self.balance_loss = balance(probabilities, choices, lengths)
        return self._mix(x, probabilities, choices), self.initial_state(len(x)) if state is None else state

    def transform(self, x: Tensor) -> Tensor:
        return self._mix(x, *self.route(x))

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities (..., num_experts), in float32 at least, and the chosen experts (..., experts_per_token)."""
        logits = self.router(x)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        probabilities = tap("router.probabilities", logits.softmax(-1))
        choices = probabilities.topk(self.config.experts_per_token, dim=-1).indices
        return probabilities, tap("router.choices", choices)

    def _mix(self, x: Tensor, probabilities: Tensor, choices: Tensor) -> Tensor:
        shares = probabilities.gather(-1, choices)
        shares = tap("router.shares", shares / shares.sum(-1, keepdim=True))
        way = self._by_number if traced() else self._by_chosen if may_sync() else self._by_all
        outputs = way(x, choices)
        return (outputs * shares.unsqueeze(-1).to(outputs.dtype)).sum(-2)

    def _by_chosen(self, x: Tensor, choices: Tensor) -> Tensor:
        """Tokens sorted by expert, each expert over its own, and all put back in place."""
        order = choices.flatten().argsort(stable=True)
        counts = choices.flatten().bincount(minlength=len(self.experts)).tolist()
        sorted_tokens = x.flatten(0, -2)[order // choices.shape[-1]]
        parts = zip(self.experts, sorted_tokens.split(counts), strict=True)
        outputs = torch.cat([expert.to_output(expert.inner(part)) for expert, part in parts])  # type: ignore[operator]
        return outputs[order.argsort()].view(*choices.shape, self.output_size)

    def _by_all(self, x: Tensor, choices: Tensor) -> Tensor:
        """The same, each expert over every token: more work, but nobody has to wait for the choices."""
        outputs = torch.stack([expert.to_output(expert.inner(x)) for expert in self.experts], -2)  # type: ignore[operator]
        return outputs.gather(-2, choices.unsqueeze(-1).expand(*choices.shape, self.output_size))

    def _by_number(self, x: Tensor, choices: Tensor) -> Tensor:
        """The same whoever is chosen, as a tracer needs it: weights picked by number from a table of all experts'."""
        first: Any = self.experts[0]
        names = [name for name, _ in first.named_parameters()]
        tables = {name: torch.stack([attrgetter(name)(expert) for expert in self.experts]) for name in names}
        weights = {name: table[choices.flatten()] for name, table in tables.items()}
        tokens = x.flatten(0, -2).repeat_interleave(choices.shape[-1], dim=0).unsqueeze(1)
        outputs = vmap(lambda weights, token: functional_call(first, weights, (token,))[0])(weights, tokens)
        return outputs.view(*choices.shape, self.output_size)


def balance(probabilities: Tensor, choices: Tensor, lengths: Lengths | None = None) -> Tensor:
    """experts × Σ (share of tokens sent to an expert) × (mean probability of it), over real positions.

    As in Switch (Fedus et al., 2022) and Mixtral: it is `experts_per_token` where all are used alike, and more else.
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
    """The sum over all mixtures of experts inside, each with its own weight; nothing where there are none."""
    losses = [layer.auxiliary_loss for layer in model.modules() if isinstance(layer, Experts)]
    found = [loss for loss in losses if loss is not None]
    return torch.stack(found).sum() if found else None
