"""Stacks from settings: patterns, widths, tied weights, short forms, and rejected settings."""

from typing import Any

import pytest
import torch
from torch import nn

from elman.errors import ConfigError
from elman.layers import LAYERS
from elman.models import LanguageModel, NGram, StackConfig
from elman.models.stack import count_parameters, on_meta
from elman.ops.norms import RMSNorm
from elman.pipeline.recipe import read_recipe
from elman.pipeline.sizes import fit_size


def build(vocabulary: int = 11, **settings: Any) -> LanguageModel:
    return LanguageModel(StackConfig.make({"hidden_size": 6, **settings}, where="model"), vocabulary)


def layers_of(model: LanguageModel) -> list[tuple[str, int, int]]:
    return [(block.kind, block.layer.input_size, block.layer.output_size) for block in model.stack.layers]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [("lstm", 6, 6)]),
        ({"pattern": "gru"}, [("gru", 6, 6)]),
        ({"pattern": ["lstm", "gru"], "num_layers": 3}, [("lstm", 6, 6), ("gru", 6, 6), ("lstm", 6, 6)]),
        ({"pattern": ["rnn"], "embedding_size": 4, "tied_embeddings": False}, [("rnn", 4, 6)]),
        ({"pattern": [{"lstm": {"hidden_size": 9}}, "rnn"]}, [("lstm", 6, 9), ("rnn", 9, 6)]),
        ({"pattern": [{"lstm": {"hidden_size": 0}}, {"gru": None}]}, [("lstm", 6, 6), ("gru", 6, 6)]),
        ({"pattern": {"recurrent": {"cell": "gru", "num_layers": 2}}}, [("recurrent", 6, 6)]),
    ],
    ids=str,
)
def test_pattern_is_repeated_to_the_number_of_layers(
    settings: dict[str, Any], expected: list[tuple[str, int, int]]
) -> None:
    """Catches: repeated layers took the width of the embedding."""
    assert layers_of(build(**settings)) == expected


def test_settings_of_a_layer_reach_its_cell() -> None:
    model = build(pattern=[{"gru": {"reset": "before", "bias": False}}, "gru"])
    first, second = (block.layer.cell for block in model.stack.layers)
    assert (first.resets_after, first.config.bias) == (False, False)
    assert (second.resets_after, second.config.bias) == (True, True)


def test_tied_weights_are_one_tensor_and_their_gradients_add() -> None:
    """Catches: a copy at the start; word vectors that got no gradient."""
    torch.manual_seed(0)
    tied, untied = build(), build(tied_embeddings=False)
    assert tied.output_weight is tied.embedding.weight
    assert untied.output_weight is not untied.embedding.weight
    assert count_parameters(untied) - count_parameters(tied) == tied.embedding.weight.numel()
    with torch.no_grad():
        untied.load_state_dict({**tied.state_dict(), "output.weight": tied.embedding.weight})
    words = torch.randint(11, (3, 8))
    for model in (tied, untied):
        model.total_loss(words, words.roll(-1, 1))[0].backward()
    both = untied.embedding.weight.grad + untied.output.weight.grad
    torch.testing.assert_close(tied.embedding.weight.grad, both)
    nn.init.zeros_(tied.embedding.weight)
    assert (tied(words)[0] == tied.output_bias).all(), "still one tensor"


def test_residuals_and_norms_match_their_formulas() -> None:
    """By the formulas. Catches: the norm after the layer left out the shortcut."""
    x = torch.randn(2, 5, 6)
    for norm in ("none", "pre", "post"):
        stack = build(pattern=["gru"], residual=True, norm=norm).stack
        block = stack.layers[0]
        inner = block.layer(block.norm(x) if norm == "pre" else x)[0]
        expected = x + inner
        if norm != "none":
            expected = (stack.top_norm if norm == "pre" else block.norm)(expected)
        torch.testing.assert_close(stack(x)[0], expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"embedding_size": 4}, r"6 and 4; set model.tied_embeddings: false, or the last .* hidden_size to 4"),
        (
            {"embedding_size": 4, "residual": True, "tied_embeddings": False},
            r"lstm maps 4 to 6; give embeddings .* the same width",
        ),
        ({"pattern": [{"gru": {"hidden_size": 8}}], "residual": True}, r"gru maps 6 to 8; .* \(model.embedding_size\)"),
        ({"pattern": ["lstn"]}, r"unknown layer 'lstn' \(did you mean 'lstm'\?\); known: attention, "),
        ({"pattern": [{"lstm": {"hiden_size": 3}}]}, r"model.pattern.lstm' \(did you mean 'hidden_size'\?\); known"),
        ({"pattern": [{"gru": {"reset": "never"}}]}, r"model.pattern.gru.reset: .*'after' or 'before', .*'never'"),
        ({"pattern": []}, r"model.pattern: a pattern is a list of layer names, like \[lstm, lstm\], but got \[\]"),
        ({"pattern": 3}, r"a pattern is a list"),
        ({"pattern": [3]}, r"one name with its settings: \{lstm: \{hidden_size: 64\}\}, but got 3"),
        ({"pattern": [{3: {}}]}, r"one name with its settings"),
        ({"pattern": [{"lstm": 64}]}, r"one name with its settings"),
        ({"pattern": [{"lstm": {}, "gru": {}}]}, r"one name with its settings"),
        (
            {"pattern": ["recurrent"], "weight_dropout": 0.5},
            r"weight_dropout: recurrent does not support it; .*pattern: \[lstm\]",
        ),
        ({"norm": "before"}, r"model.norm: .*'none', 'pre' or 'post'"),
        ({"drpout": 0.1}, r"unknown key 'drpout' in section 'model' \(did you mean 'dropout'\?\)"),
        ({"dropout": 1.0}, r"model.dropout: .*less than 1"),
    ],
    ids=str,
)
def test_invalid_stacks_are_rejected_with_a_remedy(settings: dict[str, Any], message: str) -> None:
    """Found in the first version: a layer's name or settings that were a number ended in a TypeError."""
    with pytest.raises(ConfigError, match=message):
        build(**settings)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("lstm", {"pattern": ["lstm"]}),
        (
            {"type": "gru", "reset": "before", "dropout": 0.1},
            {"pattern": [{"gru": {"reset": "before"}}], "dropout": 0.1},
        ),
        ({"type": "rnn", "num_layers": 2, "hidden_size": 5}, {"pattern": ["rnn"], "num_layers": 2, "hidden_size": 5}),
        ({"type": "recurrent", "cell": "gru"}, {"pattern": [{"recurrent": {"cell": "gru"}}]}),
        ({"hidden_size": 7}, {"hidden_size": 7}),
        ("stack", {}),
    ],
    ids=str,
)
def test_layer_name_expands_to_a_stack(short: Any, long: dict[str, Any]) -> None:
    """Catches: settings that both know went to the layer."""
    model = read_recipe({"model": short}).model
    assert model == StackConfig.make(long)
    assert read_recipe({"model": model.plain()}).model == model, "a written recipe can be read again"


CAUSAL = [name for name in LAYERS if LAYERS[name].causal]


@pytest.mark.parametrize("name", CAUSAL)
def test_every_causal_layer_is_a_model_by_its_name(name: str) -> None:
    recipe = read_recipe({"model": name}, {"model.hidden_size": 16})
    assert layers_of(LanguageModel(recipe.model, 11)) == [(name, 16, 16)]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("bidirectional", "is bidirectional"),
        ({"type": "attention", "num_heads": 7, "hidden_size": 64}, "does not split into 7 heads .* num_heads of 1, 2"),
        ({"pattern": [{"attention": {"kv_heads": 3}}], "hidden_size": 64}, "kv_heads|num_heads|head_size"),
        ({"pattern": [{"gru": {"hidden_size": 8}}], "residual": True}, "gru maps 256 to 8"),
        ({"pattern": [{"gru": {"hidden_size": 8}}]}, "tied embeddings need a top layer as wide"),
        ("atention", "did you mean 'attention'"),
    ],
    ids=str,
)
def test_invalid_models_are_rejected_when_the_recipe_is_read(model: Any, message: str) -> None:
    """Before that, heads that do not split the width were found out when the data had been read."""
    with pytest.raises(ConfigError, match=message):
        read_recipe({"model": model})


def test_solved_width_is_divisible_by_the_heads() -> None:
    """Catches: steps of 8 for all, which 6 heads do not split."""
    recipe = read_recipe({"model": {"type": "attention", "num_heads": 6}, "parameters": "200k"})
    assert fit_size(recipe, lambda config: LanguageModel(config, 50)).model.hidden_size % 6 == 0


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm", "mingru", "mamba", "attention"])
def test_width_solver_is_accurate_for_small_models(name: str) -> None:
    """Catches: widths in steps of eight."""
    recipe = read_recipe({"model": name, "parameters": "20k"})
    found = LanguageModel(fit_size(recipe, lambda config: LanguageModel(config, 50)).model, 50)
    assert count_parameters(found) == pytest.approx(20_000, rel=0.02)


def test_large_models_have_round_widths() -> None:
    """Catches: the width that comes closest, whatever it is."""
    recipe = read_recipe({"model": "lstm", "parameters": "20M"})
    assert fit_size(recipe, lambda config: LanguageModel(config, 5000)).model.hidden_size % 8 == 0


def test_a_model_without_a_width_takes_no_number_of_parameters() -> None:
    """Catches: a search for its width that never ended."""
    recipe = read_recipe({"model": "ngram", "parameters": "20k"})
    with pytest.raises(ConfigError, match="no width makes a model of about 20,000 parameters"):
        fit_size(recipe, lambda config: NGram(config, 50))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_norms_can_be_root_mean_square(norm: str) -> None:
    model = build(pattern=["gru"], residual=True, norm=norm, norm_type="rms", norm_epsilon=0.5, embedding_norm=True)
    norms = [module for module in model.modules() if isinstance(module, RMSNorm)]
    assert [module.eps for module in norms] == [0.5] * len(norms)
    assert len(norms) == (3 if norm == "pre" else 2)
    assert not any(isinstance(module, nn.LayerNorm) for module in model.modules())


@pytest.mark.parametrize("kind", ["learned", "sinusoidal"])
def test_positions_are_added_once_below_all_layers(kind: str) -> None:
    """A residual connection around them would add the embeddings twice. Catches: that shortcut."""
    stack = build(pattern=["swiglu"], num_layers=2, residual=True, positions=kind, embedding_norm=True).stack
    x = torch.randn(2, 5, 6)
    below = stack.bottom_norm(stack.positions(x)[0])
    bare = build(pattern=["swiglu"], num_layers=2, residual=True).stack
    bare.layers = stack.layers
    torch.testing.assert_close(stack(x)[0], bare(below)[0])
    written = build(pattern=["positions", "swiglu"], residual=True, norm="pre").stack
    assert not written.layers[0].residual
    assert written.layers[0].norm is None


@pytest.mark.parametrize("name", CAUSAL)
def test_parameters_can_be_counted_without_memory(name: str) -> None:
    own = {"orthogonal": True} if "orthogonal" in LAYERS[name].Config.model_fields else {}
    settings = {"pattern": [{name: own}], "norm": "pre", "hidden_size": 16}
    assert on_meta(lambda: count_parameters(build(**settings))) == count_parameters(build(**settings))
