"""The plain PyTorch and ONNX counterparts of a model give its logits."""

import pytest
import torch

from elman.bench.peer_models import NoCounterpart, OnnxModel, TorchModel
from elman.models import LanguageModel, StackConfig

PATTERNS = [
    [{"lstm": {"hidden_size": 12}}, {"lstm": {"hidden_size": 8}}],
    ["gru", "gru"],
    ["rnn"],
    [{"rnn": {"nonlinearity": "relu"}}],
]


def build(pattern, **settings):
    torch.manual_seed(0)
    config = StackConfig.make({"hidden_size": 8, "pattern": pattern, **settings})
    model = LanguageModel(config, 30).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("tied", [True, False])
def test_plain_torch_gives_the_same_logits(pattern, tied):
    model = build(pattern, tied_embeddings=tied, embedding_scale=0)
    tokens = torch.randint(30, (3, 9))
    with torch.no_grad():
        logits, states = TorchModel(model).eval()(tokens[:, :4])
        rest, _ = TorchModel(model).eval()(tokens[:, 4:], states)
        expected, _ = model(tokens)
    assert torch.allclose(torch.cat([logits, rest], 1), expected, atol=1e-5)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_steps_of_plain_torch_give_the_same_logits(pattern):
    model = build(pattern)
    tokens, peer = torch.randint(30, (1, 9)), TorchModel(model).eval()
    states, logits = peer.initial_state(), []
    with torch.no_grad():
        for token in tokens.unbind(1):
            one, states = peer.step(token, states)
            logits.append(one)
        expected, _ = model(tokens)
    assert torch.allclose(torch.stack(logits, 1), expected, atol=1e-5)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_onnxruntime_gives_the_same_logits(pattern):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    model = build(pattern)
    tokens = [3, 1, 4, 1, 5]
    made = OnnxModel(TorchModel(model), "fp32")
    with torch.no_grad():
        expected, _ = model(torch.tensor([tokens]))
    assert torch.allclose(torch.stack([made.step(token) for token in tokens]), expected[0], atol=1e-5)


@pytest.mark.parametrize(
    ("pattern", "settings", "reason"),
    [
        (["attention"], {}, "Attention"),
        ([{"gru": {"reset": "before"}}], {}, "before"),
        (["lstm"], {"residual": True, "norm": "pre"}, "residual and norm"),
    ],
)
def test_a_model_without_counterpart_says_why(pattern, settings, reason):
    with pytest.raises(NoCounterpart, match=reason):
        TorchModel(build(pattern, **settings))
