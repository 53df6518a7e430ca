"""Fused torch optimizers, their state as a flat dictionary of tensors, and weight averaging."""

import inspect
import math
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.optim import Optimizer

from elman.training.config import TrainingConfig
from elman.training.learning_rates import DEFAULT_LEARNING_RATE


def _eager(cls: Any) -> Any:
    """An optimizer of torch without the wrappers that import torch.compile's machinery at the first update.

    That import takes longer than a small training, and is needed only where updates themselves are compiled.
    """
    wrapped = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
    methods = {name: inspect.unwrap(getattr(cls, name)) for name in wrapped}
    return type(cls.__name__, (cls,), {**methods, "step": torch.no_grad()(inspect.unwrap(cls.step))})


SGD, Adam, AdamW = (_eager(cls) for cls in (optim.SGD, optim.Adam, optim.AdamW))
MOMENTS = {"step", "exp_avg", "exp_avg_sq"}
STATES: dict[type, set[str]] = {SGD: {"momentum_buffer"}, Adam: MOMENTS, AdamW: MOMENTS}


def make_optimizer(model: nn.Module, config: TrainingConfig) -> Optimizer:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = _groups(model, parameters) if config.weight_decay else parameters
    common = {"lr": config.learning_rate or DEFAULT_LEARNING_RATE, "weight_decay": config.weight_decay, "fused": True}
    if any(parameter.device.type not in ("cpu", "cuda", "mps") for parameter in parameters):
        common["fused"] = False
    if config.optimizer == "sgd":
        sgd = SGD(groups, momentum=config.momentum, **common)
        if config.momentum:  # torch initializes the buffers with the first gradient, even if that update is skipped
            sgd.state.update({parameter: {"momentum_buffer": torch.zeros_like(parameter)} for parameter in parameters})
        return sgd
    cls = Adam if config.optimizer == "adam" else AdamW
    return cls(groups, betas=config.betas, **common)


def _groups(model: nn.Module, parameters: list[nn.Parameter]) -> list[dict[str, Any]]:
    """Parameter groups: weight decay applies to matrices only, not to biases, gains and decay rates."""
    decaying = {
        id(parameter)
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.ndim > 1 and name not in getattr(module, "no_decay", ())
    }
    exempt = [parameter for parameter in parameters if id(parameter) not in decaying]
    decayed = [parameter for parameter in parameters if id(parameter) in decaying]
    return [{"params": decayed}, {"params": exempt, "weight_decay": 0.0}] if exempt else [{"params": decayed}]


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """Moments and step counters, named `<parameter index>.<name>` for a checkpoint."""
    state = optimizer.state_dict()["state"]
    named = {f"{index}.{name}": value for index, values in state.items() for name, value in values.items()}
    return {name: value for name, value in named.items() if value is not None}


def restore_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """ValueError where these are not states of the optimizer's parameters."""
    state: dict[int, dict[str, Tensor]] = {}
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        if value.shape not in (parameters[int(index)].shape, ()):
            raise ValueError(f"{key} is no state of the optimizer")
        state.setdefault(int(index), {})[name] = value
    if any(one.keys() != STATES[type(optimizer)] for one in state.values()):
        raise ValueError("the states of the optimizer are incomplete")
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


class WeightAverage:
    """Running mean of the weights, or with a finite `span` their exponential moving average (EMA).

    Update n has weight 1 / min(n, span).
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
        weights = [self.parameters[name].detach() for name in self.mean]  # a restored mean may have another order
        torch._foreach_lerp_(list(self.mean.values()), weights, 1 / min(self.count, self.span))

    def swap(self) -> None:
        """Exchange weights and mean; a second call undoes it."""
        with torch.no_grad():
            for name, mean in self.mean.items():
                parameter = self.parameters[name]
                held = parameter.detach().clone()
                parameter.copy_(mean)
                mean.copy_(held)
