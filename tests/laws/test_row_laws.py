"""Rows of a compiled step that come and go: each has the bits that it has alone, whatever its company.

Every registered causal layer as a language model; rows arrive and leave at random, with and without logits, on one
thread and on two, and are carried from one runner to another.
"""

import random
from typing import Any

import pytest
import torch
from test_native_laws import CASES, VOCABULARY, model_of
from torch import Tensor

from elman.compiler.cpu.step import CompiledStep, RowRunner, Runner, compile_step
from elman.ops.state import leaves

FORMATS = ["fp32", "int8"]


def compiled(model: Any, weights: str) -> CompiledStep:
    with torch.inference_mode(False):
        return compile_step(model, weights)


def alone(program: CompiledStep, state: Any, tokens: list[int]) -> tuple[list[Tensor], list[Tensor]]:
    """The logits after each token, and the final state, of a row by itself."""
    runner = Runner(program, leaves(state))
    logits = [runner.step(torch.tensor([token])).clone() for token in tokens]
    return logits, [part.clone() for part in runner.state]


@torch.inference_mode()
def assert_company_changes_nothing(program: CompiledStep, state: Any, threads: int, seed: int, steps: int = 40) -> None:
    rng = random.Random(seed)
    runner, rows, texts = RowRunner(program, threads), {}, {}
    for _ in range(steps):
        for _ in range(rng.choice([0, 0, 1, 3, 8])):
            text = len(texts)
            texts[text], rows[text] = [], runner.add(state)
        for text in rng.sample(sorted(rows), rng.randint(0, len(rows) // 2)):
            runner.remove(rows.pop(text))
        for text in rng.sample(sorted(rows), min(1, len(rows))):  # a state is a value: it may go on in other memory
            kept = runner.state(rows[text])
            moved = runner.add(kept)
            runner.remove(rows[text])
            rows[text] = moved
        stepped = rng.sample(sorted(rows), rng.randint(0, len(rows)))
        tokens = [rng.randrange(VOCABULARY) for _ in stepped]
        wanted = [rng.random() < 0.7 for _ in stepped]
        runner.step([rows[text] for text in stepped], tokens, wanted)
        for text, token, want in zip(stepped, tokens, wanted, strict=True):
            texts[text].append((token, runner.logits(rows[text]).clone() if want else None))
    assert len(runner) == len(rows)
    assert len(texts) > 20
    for text, history in texts.items():
        logits, final = alone(program, state, [token for token, _ in history])
        for own, (_, found) in zip(logits, history, strict=True):
            assert found is None or torch.equal(found, own)
        if text in rows:
            assert all(torch.equal(a, b) for a, b in zip(leaves(runner.state(rows[text])), final, strict=True))


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize(("name", "settings"), CASES)
def test_rows_have_the_bits_they_have_alone(name, settings, weights):
    model = model_of(name, settings)
    program = compiled(model, weights)
    for threads in (1, 2):
        assert_company_changes_nothing(program, model.initial_state(1), threads, seed=threads)


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("width", [40, 130, 144, 160])
def test_matrices_of_any_width_give_the_same_bits_in_company(width, weights):
    """Panels at the end of a matrix are multiplied in another way than the rest."""
    model = model_of("lstm", {}, hidden_size=width, tied_embeddings=False)
    assert_company_changes_nothing(compiled(model, weights), model.initial_state(1), 2, seed=width)
