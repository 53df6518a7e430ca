"""The node tests of ONNX for RNN, GRU and LSTM, with their numbers and with random ones, on our layers.

ONNX has the gates in the order (update, reset) of GRUs and (input, output, forget, candidate) of LSTMs, and its biases
of input and past apart.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from elman.layers import LAYERS
from elman.layers.bidirectional import Ends, reverse

ORDER = {"RNN": [0], "GRU": [1, 0, 2], "LSTM": [0, 2, 3, 1]}  # of our gates among theirs


class Node(NamedTuple):
    kind: str
    attributes: dict[str, Any]
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    helper: Any  # their reference in numpy


@cache
def nodes() -> dict[str, Node]:
    pytest.importorskip("onnx", reason="the package onnx is not installed")
    from onnx.backend.test.case.node import gru, lstm, rnn
    from onnx.helper import get_attribute_value

    found: dict[str, Node] = {}
    for kind, module in {"GRU": gru, "LSTM": lstm, "RNN": rnn}.items():

        def expect(node: Any, inputs: Any, outputs: Any, name: str, kind: str = kind, module: Any = module) -> None:
            attributes = {one.name: get_attribute_value(one) for one in node.attribute}
            names = [one for one in node.input if one]
            given = dict(zip(names, inputs, strict=True))
            helper = getattr(module, f"{kind}Helper")
            expected = dict(zip([one for one in node.output if one], outputs, strict=True))
            found[name] = Node(kind, attributes, given, expected, helper)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "expect", expect)
            for export in [one for one in dir(getattr(module, kind)) if one.startswith("export_")]:
                getattr(getattr(module, kind), export)()
    return found


def layer_of(node: Node, direction: int) -> Any:
    """Our layer with the weights of one direction."""
    sizes: dict[str, Any] = {"hidden_size": node.attributes["hidden_size"]}
    name = {"RNN": "rnn", "GRU": "gru", "LSTM": "peephole" if "P" in node.inputs else "lstm"}[node.kind]
    if node.kind == "GRU":
        sizes["reset"] = "after" if node.attributes.get("linear_before_reset") else "before"
    inputs, parts = node.inputs, len(ORDER[node.kind])

    def ours(array: Any) -> Tensor:
        blocks = torch.as_tensor(array[direction]).chunk(parts)
        return torch.cat([blocks[place] for place in ORDER[node.kind]])

    layer = LAYERS[name](LAYERS[name].Config.make(sizes), inputs["W"].shape[-1])
    bias = inputs.get("B", np.zeros((2, 2 * parts * sizes["hidden_size"]), dtype=np.float32))
    input_bias, past_bias = (ours(part) for part in np.split(bias, 2, axis=1))
    past, cell = ours(inputs["R"]), layer.cell
    weights = {"from_input.weight": ours(inputs["W"]), "from_input.bias": input_bias + past_bias}
    if node.kind == "GRU" and cell.resets_after:
        apart = 2 * sizes["hidden_size"]
        weights["from_input.bias"][apart:] = input_bias[apart:]
        weights |= {"from_past.weight": past, "past_bias": past_bias[apart:]}
    elif node.kind == "GRU":
        weights |= {"from_past.weight": past[: -past.shape[1]], "from_reset_past.weight": past[-past.shape[1] :]}
    else:
        weights["from_past.weight"] = past
    if name == "peephole":
        write, show, keep = torch.as_tensor(inputs["P"][direction]).chunk(3)
        weights |= {"from_memory.weight": torch.stack([write, keep]), "from_new_memory.weight": show[None]}
    cell.load_state_dict(weights)
    return layer


def initial(node: Node, layer: Any, direction: int, batch: int) -> Any:
    state, own = layer.initial_state(batch), []
    for name in ("initial_h", "initial_c")[: 2 if node.kind == "LSTM" else 1]:
        given = node.inputs.get(name)
        if given is None:
            return state
        own.append(torch.as_tensor(given[:, direction] if node.attributes.get("layout") else given[direction]))
    return type(state)(*own) if node.kind == "LSTM" else own[0]


def run(node: Node) -> dict[str, Any]:
    """Y, Y_h and Y_c, as the node's layout has them."""
    batch_first = bool(node.attributes.get("layout"))
    x = torch.as_tensor(node.inputs["X"])
    x = x if batch_first else x.transpose(0, 1)
    direction = node.attributes.get("direction", b"forward").decode()
    layers = [layer_of(node, number) for number in range(len(node.inputs["W"]))]
    states = [initial(node, layer, number, len(x)) for number, layer in enumerate(layers)]
    if direction == "bidirectional":
        both = LAYERS["bidirectional"](
            LAYERS["bidirectional"].Config.make({"layer": layers[0].name, "hidden_size": layers[0].output_size}),
            x.shape[-1],
        )
        both.ahead, both.back = layers
        joined, ends = both(x, Ends(*states))
        outputs, last = joined.unflatten(-1, (2, -1)), [ends.forward, ends.backward]
    else:
        turned = reverse(x) if direction == "reverse" else x
        output, end = layers[0](turned, states[0])
        outputs, last = (reverse(output) if direction == "reverse" else output).unsqueeze(2), [end]
    found = {"Y": outputs}
    for place, key in enumerate(("Y_h", "Y_c")[: 2 if node.kind == "LSTM" else 1]):
        found[key] = torch.stack([one[place] if node.kind == "LSTM" else one for one in last], dim=1)
    if not batch_first:
        found |= {key: state.transpose(0, 1) for key, state in found.items()} | {"Y": outputs.permute(1, 2, 0, 3)}
    return {key: value.detach().numpy() for key, value in found.items()}


NAMES = [
    *("gru_batchwise", "gru_bidirectional", "gru_defaults", "gru_reverse", "gru_seq_length", "gru_with_initial_bias"),
    *("lstm_batchwise", "lstm_bidirectional", "lstm_defaults", "lstm_reverse", "lstm_with_initial_bias"),
    *("lstm_with_peepholes", "rnn_seq_length", "simple_rnn_batchwise", "simple_rnn_bidirectional"),
    *("simple_rnn_defaults", "simple_rnn_reverse", "simple_rnn_with_initial_bias"),
]
FORMS = [*((name, 0) for name in NAMES), *((name, 1) for name in NAMES if name.startswith("gru"))]


@pytest.mark.parametrize("name", NAMES)
def test_our_layers_give_the_outputs_of_the_node(name: str) -> None:
    node = nodes()[f"test_{name}"]
    found = run(node)
    for key, expected in node.outputs.items():
        np.testing.assert_allclose(found[key], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "before"), FORMS)
def test_so_they_do_with_random_numbers(name: str, before: int) -> None:
    """Their weights are all equal. Catches: gates exchanged; the reset gate before the product and after it."""
    node, random = nodes()[f"test_{name}"], np.random.default_rng(1)
    sizes = {key: value.shape for key, value in node.inputs.items() if key != "sequence_lens"}
    dirs, hidden = sizes["W"][0], node.attributes["hidden_size"]
    sizes["B"] = (dirs, 2 * len(ORDER[node.kind]) * hidden)
    drawn = {key: random.normal(size=shape).astype(np.float32) for key, shape in sizes.items()}
    attributes = node.attributes | {"linear_before_reset": before}
    plain = {key: value.decode() if isinstance(value, bytes) else value for key, value in attributes.items()}
    expected = node.helper(**drawn, **plain).step()
    found = run(node._replace(attributes=attributes, inputs=drawn))
    for key, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(found[key], theirs, rtol=1e-4, atol=1e-5)


def test_no_node_of_recurrent_layers_is_left_out() -> None:
    assert set(nodes()) == {f"test_{name}" for name in NAMES}
