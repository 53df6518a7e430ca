"""A function of tensors as the list of what it computes, in few words: what every code generator of ours reads.

Names of operations are those of ATen's core set; views and products are kept, everything composite is taken apart.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

COMPOSITE = [
    torch.ops.aten.native_layer_norm.default,
    torch.ops.aten._softmax.default,
    torch.ops.aten._log_softmax.default,
    torch.ops.aten.silu.default,
    torch.ops.aten.gelu.default,
    torch.ops.aten.softplus.default,
]
SAME = {torch.ops.aten.alias.default, torch.ops.aten.detach.default}


def trace(function: Callable[..., Any], *examples: Any, numbers: bool = True) -> fx.Graph:
    """The graph of `function` at these examples (any nest of tensors): its inputs and outputs are flat lists.

    Every node of a tensor has `node.meta["val"]`, whose shape and dtype are those at the examples. What depends on
    values, and not on shapes alone, is an error of torch's tracer. Examples on the meta device have no `numbers`:
    then shortcuts that layers take on a CPU after a look at their values stay out of the graph.
    """
    table = {**core_aten_decompositions(), **get_decompositions(COMPOSITE)}
    with torch.no_grad():
        module = make_fx(function, decomposition_table=table, tracing_mode="fake" if numbers else "real")(*examples)
    graph = module.graph
    for node in list(graph.nodes):
        if node.target in SAME:
            node.replace_all_uses_with(node.args[0])
    graph.eliminate_dead_code()
    return graph


@contextmanager
def left_alone(module: nn.Module) -> Iterator[None]:
    """Around a trace: attributes that the code sets get back what they were, since the new ones are no numbers.

    That it sets them is an error: machine code would not, and nothing of a step lasts but its state.
    """
    before = {one: dict(vars(one)) for one in module.modules()}
    try:
        yield
    finally:
        changed = []
        for one, known in before.items():
            changed += [name for name, value in vars(one).items() if known.get(name, before) is not value]
            vars(one).clear()
            vars(one).update(known)
    if changed:
        raise ValueError(f"it sets self.{changed[0]}, and what lasts from step to step belongs in the state")


LOOKED = ("data-dependent", "_local_scalar_dense")  # in what torch says of an if, a float() or an item()
ELSEWHERE = "not on the expected device"


def why_untraced(error: Exception) -> str:
    """In words for whoever wrote the code: torch's own, unless they are about its tracer."""
    text = str(error).strip()
    if any(word in text for word in LOOKED):
        return "it looks at the value of a number (if, float, item); torch.where chooses without"
    if ELSEWHERE in text:
        return "it makes a tensor on a device of its own; device=state.device makes it where the others are"
    return text.partition("\n")[0][:200] or repr(error)


def described(graph: fx.Graph) -> list[str]:
    """The graph as lines `name = operation(arguments) -> shape`, for error messages and `explain`."""
    lines = []
    for node in graph.nodes:
        if node.op == "call_function":
            value = node.meta.get("val")
            shape = tuple(value.shape) if isinstance(value, Tensor) else ""
            lines.append(f"{node.name} = {getattr(node.target, '__name__', node.target)}{node.args} -> {shape}")
    return lines
