"""Tracing: records a function of tensors as an fx.Graph of ATen operations, the input of all code generators.

Operations of ATen's core set, views and matmuls are recorded as they are; composite operations are decomposed.
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

from elman.compiler.decompositions import decomposition
from elman.ops.host_sync import without_host_sync

IDENTITIES = {torch.ops.aten.alias.default, torch.ops.aten.detach.default}
READS_VALUES = "it reads the value of a tensor (if, float, item); use torch.where to choose"
TO_HOST = {Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__dlpack__}  # exports that are no ATen operation


def trace(function: Callable[..., Any], *examples: Any) -> fx.Graph:
    """The graph of `function` at these examples (any pytree of tensors); its inputs and outputs are flat lists.

    Every tensor node has `node.meta["val"]`, a meta tensor with the shape and dtype it has for these examples. Control
    flow that depends on values is an error; a function with such a shortcut asks `host_sync.may_sync` first.
    """
    recorder = _Recorder()
    leaves, spec = pytree.tree_flatten(examples)
    inputs = [recorder.placeholder(one) for one in leaves]
    with torch.no_grad(), without_host_sync(traced=True), _RejectExports(), recorder:
        results = pytree.tree_leaves(function(*pytree.tree_unflatten(inputs, spec)))
    recorder.graph.output([recorder.node_of(one) for one in results])
    recorder.graph.eliminate_dead_code()
    return recorder.graph


class _RejectExports(TorchFunctionMode):
    """Rejects functions that copy values to Python without an ATen operation."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in TO_HOST:
            raise ValueError(READS_VALUES)
        return function(*args, **(kwargs or {}))


class _Recorder(TorchDispatchMode):
    """Records every operation while running it. Torch's own tracers import its compiler, which takes longer than all
    else before the first step."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Else torch imports dynamo to disable it here."""
        return False

    def __init__(self) -> None:
        super().__init__()
        self.graph = fx.Graph()
        self.nodes = WeakTensorKeyDictionary()
        self.external: list[Tensor] = []  # tensors created outside of the trace
        self.stale = WeakTensorKeyDictionary()  # tensors overwritten through an alias, and by which operation

    def placeholder(self, example: Tensor) -> Tensor:
        tensor = example.detach()  # a new object, even if one tensor is given twice
        self._record(tensor, self.graph.placeholder(f"given_{len(self.graph.nodes)}"))
        self.external.append(tensor)
        return tensor

    def node_of(self, value: Any) -> Any:
        """The node of a tensor; other values are returned as they are."""
        if not isinstance(value, Tensor):
            return value
        if value in self.stale:
            raise ValueError(f"{self.stale[value]} writes in place into a tensor that is also read under another name")
        if value not in self.nodes:
            self._record(value, self.graph.create_node("get_attr", f"constant_{len(self.graph.nodes)}"))
            self.external.append(value)
        return self.nodes[value]

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _data_dependent(operation, args):
            raise ValueError(READS_VALUES)
        if operation._schema.is_mutable:
            return self._functionalize(operation, args, kwargs)
        with self:
            result = decomposition(operation, args)(*args, **kwargs)
        return self._call(operation, args, kwargs) if result is NotImplemented else result

    def _call(self, operation: Any, args: Any, kwargs: Any) -> Any:
        node_args = pytree.tree_map(self.node_of, (args, kwargs))
        result = operation(*args, **kwargs)
        node = node_args[0][0] if operation in IDENTITIES else self.graph.call_function(operation, *node_args)
        if isinstance(result, Tensor):
            self._record(result, node)
            return result
        for index, part in enumerate(result):
            if isinstance(part, Tensor):
                self._record(part, self.graph.call_function(getitem, (node, index)))
        return result

    def _functionalize(self, operation: Any, args: Any, kwargs: Any) -> Any:
        """Records an in-place operation as its functional form, whose result is the target's node from then on.

        Aliases of the target become stale: reading them is an error.
        """
        target, name = args[0], operation._schema.name.split("::")[-1]
        functional = getattr(getattr(torch.ops.aten, name.removesuffix("_"), None), operation._overloadname, None)
        if functional in IDENTITIES:
            return operation(*args, **kwargs)
        if "out" in kwargs or any(_overlap(one, target) for one in self.external):
            raise ValueError(f"{name} writes in place into a tensor from outside")
        if functional is None:  # recorded as it is; no back end supports it
            return self._call(operation, args, kwargs)
        with self:
            new = functional(*args, **kwargs)
        if (new.shape, new.dtype) != (target.shape, target.dtype):
            raise ValueError(f"{name} writes {new.dtype} into {target.dtype}")
        operation(*args, **kwargs)
        for other in [one for one in self.nodes if one is not target and _overlap(one, target)]:
            self.stale[other] = name
        self._record(target, self.node_of(new))
        return target

    def _record(self, tensor: Tensor, node: fx.Node) -> None:
        self.nodes[tensor] = node
        node.meta["val"] = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors share an element in memory."""
    if one.untyped_storage()._cdata != other.untyped_storage()._cdata:
        return False
    if one.element_size() != other.element_size():
        return True
    touched = torch.zeros(one.untyped_storage().nbytes() // one.element_size(), dtype=torch.bool)
    touched.as_strided(one.shape, one.stride(), one.storage_offset()).fill_(True)
    return bool(touched.as_strided(other.shape, other.stride(), other.storage_offset()).any())


def _data_dependent(operation: Any, args: Any) -> bool:
    """Whether the result's shape, or a Python value, depends on tensor values."""
    if torch.Tag.data_dependent_output in operation.tags:
        return True
    if operation is torch.ops.aten.index.Tensor:  # with a mask, but not with integer indices
        return any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1])
    return torch.Tag.dynamic_output_shape in operation.tags


@contextmanager
def attributes_restored(module: nn.Module) -> Iterator[None]:
    """Around a trace: restores attributes that the code assigns, and raises an error if it assigned any.

    Compiled code would not assign them; all that lasts from step to step must be in the state.
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
        raise ValueError(f"it assigns self.{changed[0]}; values that last from step to step belong in the state")


def trace_error(error: Exception) -> str:
    """The first line of an error."""
    return str(error).strip().partition("\n")[0][:200] or repr(error)
