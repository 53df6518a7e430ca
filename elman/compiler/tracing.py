"""A function of tensors as the list of what it computes, in few words: what every code generator of ours reads.

Names of operations are those of ATen's core set; views and products are kept, everything composite is taken apart.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import getitem
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from elman.compiler.decompositions import parts
from elman.ops.host_sync import without_host_sync

SAME = {torch.ops.aten.alias.default, torch.ops.aten.detach.default}
LOOKED = "it looks at the value of a number (if, float, item); torch.where chooses without"
OUT = {Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__dlpack__}  # ways for numbers that no operation is


def trace(function: Callable[..., Any], *examples: Any) -> fx.Graph:
    """The graph of `function` at these examples (any nest of tensors): its inputs and outputs are flat lists.

    Every node of a tensor has `node.meta["val"]`, without memory, whose shape and dtype are those at the examples. What
    depends on values, and not on shapes alone, is an error; who may look for a shortcut takes none (`may_wait`).
    """
    recorder = _Recorder()
    leaves, form = pytree.tree_flatten(examples)
    inputs = [recorder.given(one) for one in leaves]
    with torch.no_grad(), without_host_sync(traced=True), _NoWayOut(), recorder:
        results = pytree.tree_leaves(function(*pytree.tree_unflatten(inputs, form)))
    recorder.graph.output([recorder.node_of(one) for one in results])
    recorder.graph.eliminate_dead_code()
    return recorder.graph


class _NoWayOut(TorchFunctionMode):
    """Refuses what takes numbers out of tensors unseen."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in OUT:
            raise ValueError(LOOKED)
        return function(*args, **(kwargs or {}))


class _Recorder(TorchDispatchMode):
    """Notes every operation, while it is done. Torch's own tracers do it too, but import its compiler first, which
    takes longer than all else that is done for a step."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Or the compiler would be imported to be told that it has nothing to do here."""
        return False

    def __init__(self) -> None:
        super().__init__()
        self.graph = fx.Graph()
        self.nodes = WeakTensorKeyDictionary()
        self.outside: list[Tensor] = []  # what was there before
        self.stale = WeakTensorKeyDictionary()  # what was written over through another tensor

    def given(self, example: Tensor) -> Tensor:
        tensor = example.detach()  # of its own, even if the same is given twice
        self._note(tensor, self.graph.placeholder(f"given_{len(self.graph.nodes)}"))
        self.outside.append(tensor)
        return tensor

    def node_of(self, value: Any) -> Any:
        """All else than tensors is itself."""
        if not isinstance(value, Tensor):
            return value
        if value in self.stale:
            raise ValueError(f"{self.stale[value]} writes into a tensor that others hold")
        if value not in self.nodes:
            self._note(value, self.graph.create_node("get_attr", f"constant_{len(self.graph.nodes)}"))
            self.outside.append(value)
        return self.nodes[value]

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _looks(operation, args):
            raise ValueError(LOOKED)
        if operation._schema.is_mutable:
            return self._written(operation, args, kwargs)
        with self:
            found = parts(operation, args)(*args, **kwargs)
        return self._done(operation, args, kwargs) if found is NotImplemented else found

    def _done(self, operation: Any, args: Any, kwargs: Any) -> Any:
        given = pytree.tree_map(self.node_of, (args, kwargs))
        found = operation(*args, **kwargs)
        node = given[0][0] if operation in SAME else self.graph.call_function(operation, *given)
        if isinstance(found, Tensor):
            self._note(found, node)
            return found
        for place, part in enumerate(found):
            if isinstance(part, Tensor):
                self._note(part, self.graph.call_function(getitem, (node, place)))
        return found

    def _written(self, operation: Any, args: Any, kwargs: Any) -> Any:
        """An operation that writes over a tensor is one that makes another, which bears its name from then on; nobody
        may read what was there under a third name."""
        target, name = args[0], operation._schema.name.split("::")[-1]
        plain = getattr(getattr(torch.ops.aten, name.removesuffix("_"), None), operation._overloadname, None)
        if plain in SAME:
            return operation(*args, **kwargs)
        if "out" in kwargs or any(_overlap(one, target) for one in self.outside):
            raise ValueError(f"{name} writes into a tensor that others hold")
        if plain is None:  # nobody who reads the graph knows it
            return self._done(operation, args, kwargs)
        with self:
            made = plain(*args, **kwargs)
        if (made.shape, made.dtype) != (target.shape, target.dtype):
            raise ValueError(f"{name} writes {made.dtype} into {target.dtype}")
        operation(*args, **kwargs)
        for other in [one for one in self.nodes if one is not target and _overlap(one, target)]:
            self.stale[other] = name
        self._note(target, self.node_of(made))
        return target

    def _note(self, tensor: Tensor, node: fx.Node) -> None:
        self.nodes[tensor] = node
        node.meta["val"] = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Whether they have a number in common."""
    if one.untyped_storage()._cdata != other.untyped_storage()._cdata:
        return False
    if one.element_size() != other.element_size():
        return True
    seen = torch.zeros(one.untyped_storage().nbytes() // one.element_size(), dtype=torch.bool)
    seen.as_strided(one.shape, one.stride(), one.storage_offset()).fill_(True)
    return bool(seen.as_strided(other.shape, other.stride(), other.storage_offset()).any())


def _looks(operation: Any, args: Any) -> bool:
    """Whether what it gives depends on numbers in another way than by computing with them."""
    if torch.Tag.data_dependent_output in operation.tags:
        return True
    if operation is torch.ops.aten.index.Tensor:  # by places, or by those where a mask is true
        return any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1])
    return torch.Tag.dynamic_output_shape in operation.tags


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


def why_untraced(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200] or repr(error)


def described(graph: fx.Graph) -> list[str]:
    """The graph as lines `name = operation(arguments) -> shape`, for error messages and `explain`."""
    lines = []
    for node in graph.nodes:
        if node.op == "call_function":
            value = node.meta.get("val")
            shape = tuple(value.shape) if isinstance(value, Tensor) else ""
            lines.append(f"{node.name} = {getattr(node.target, '__name__', node.target)}{node.args} -> {shape}")
    return lines
