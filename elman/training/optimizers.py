"""Update rules: torch's own, in their fused form, and their state as plain tensors."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from elman.training.config import TrainingConfig
from elman.training.schedules import RATE


def make_optimizer(model: nn.Module, config: TrainingConfig) -> Optimizer:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = _groups(model, parameters) if config.weight_decay else parameters
    common = {"lr": config.learning_rate or RATE, "weight_decay": config.weight_decay, "fused": True}
    if any(parameter.device.type not in ("cpu", "cuda", "mps") for parameter in parameters):
        common["fused"] = False
    if config.optimizer == "sgd":
        rule = SGD(groups, momentum=config.momentum, **common)  # type: ignore[arg-type]
        if config.momentum:  # torch begins them with the first gradient, also where that update is left out
            rule.state.update({parameter: {"momentum_buffer": torch.zeros_like(parameter)} for parameter in parameters})
        return rule
    kind = Adam if config.optimizer == "adam" else AdamW
    return kind(groups, betas=config.betas, **common)  # type: ignore[arg-type]


def _groups(model: nn.Module, parameters: list[nn.Parameter]) -> list[dict[str, Any]]:
    """Only products decay: biases, gains and rates would be pulled away from what they mean."""
    decaying = {
        id(parameter)
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.ndim > 1 and name not in getattr(module, "no_decay", ())
    }
    held = [parameter for parameter in parameters if id(parameter) not in decaying]
    rest = [parameter for parameter in parameters if id(parameter) in decaying]
    return [{"params": rest}, {"params": held, "weight_decay": 0.0}] if held else [{"params": rest}]


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """Moments and counters by parameter number: what a checkpoint stores."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": value
        for index, values in state.items()
        for name, value in values.items()
        if value is not None
    }


def restore_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


class Average:
    """Running mean of the weights, begun when asked; `swap()` puts it in their place for a while.

    With a span it forgets: after so many updates each new one counts for 1 part in `span`.
    """

    def __init__(self, model: nn.Module, span: float = math.inf):
        self.parameters, self.span = dict(model.named_parameters()), span
        self.mean: dict[str, Tensor] = {}
        self.count = 0

    def update(self) -> None:
        self.count += 1
        if self.count == 1:
            self.mean = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
            return
        weights = [self.parameters[name].detach() for name in self.mean]  # a restored mean has its names in any order
        torch._foreach_lerp_(list(self.mean.values()), weights, 1 / min(self.count, self.span))

    def swap(self) -> None:
        """Exchange weights and mean; a second call puts everything back."""
        with torch.no_grad():
            for name, mean in self.mean.items():
                parameter = self.parameters[name]
                held = parameter.detach().clone()
                parameter.copy_(mean)
                mean.copy_(held)
