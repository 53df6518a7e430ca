"""Who trains attention that sees no order is told so, and nobody else."""

from pathlib import Path

import pytest
import torch
from task_data import settings_of
from test_long_texts import notes_of

from elman.models.stack import Stack, StackConfig
from elman.models.text_reader import ClassifierConfig
from elman.pipeline.tasks.position_checks import ignores_order, order_warning

BLIND = "attention without positions ignores the order of tokens"
ROTARY = {"attention": {"positions": "rotary"}}
LONE = ["attention", "feedforward"]
STACKS = [
    (StackConfig, {"pattern": ["attention"]}, True),
    (StackConfig, {"pattern": ["swiglu", *LONE], "residual": True, "norm": "pre"}, True),
    (StackConfig, {"pattern": [*LONE, *LONE], "residual": True}, False),
    (StackConfig, {"pattern": [ROTARY]}, False),
    (StackConfig, {"pattern": ["attention"], "positions": "sinusoidal"}, False),
    (StackConfig, {"pattern": ["convolution", "attention"]}, False),
    (StackConfig, {"pattern": ["feedforward"]}, False),
    (ClassifierConfig, {"pattern": ["two-way-attention", "two-way-attention"], "residual": True}, True),
    (ClassifierConfig, {"pattern": ["two-way-attention"], "positions": "learned"}, False),
]


@pytest.mark.parametrize(("kind", "settings", "expected"), STACKS)
def test_a_stack_is_called_blind_just_where_shuffling_its_past_changes_nothing(kind, settings, expected) -> None:
    """Catches: two causal layers; a stack of feed-forward layers, which has no past; positions of the stack."""
    torch.manual_seed(0)
    stack = Stack(kind.make({"hidden_size": 8, **settings}), 8).double().eval()
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    other = x[:, [3, 1, 0, 4, 2, 5]]
    same = torch.allclose(stack(x)[0][:, -1], stack(other)[0][:, -1], atol=1e-12)
    remembers = not torch.allclose(stack(x)[0][:, -1], stack(x[:, 2:])[0][:, -1], atol=1e-12)
    assert ignores_order(stack) == expected == (same and remembers)


@pytest.mark.slow
def test_who_trains_it_is_told(data, tmp_path: Path) -> None:
    settings = settings_of("classify", data, **{"training.max_epochs": 1, "model": "attention"})
    assert any(note.startswith(BLIND) for note in notes_of(settings, tmp_path / "run"))
    settings["model"] = "transformer"
    assert not any(note.startswith(BLIND) for note in notes_of(settings, tmp_path / "other"))


def test_models_without_layers_are_not_asked() -> None:
    assert order_warning(torch.nn.Linear(2, 2)) == []
