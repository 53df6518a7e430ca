"""Training, evaluation, generation, traces and races in one process, in any order, as a notebook runs them."""

import math
from contextlib import nullcontext
from itertools import permutations

import pytest
import torch
from inference_tensors import none_kept
from whole_runs import run

import elman

ON_GPU = torch.cuda.is_available()  # where the kernels take these sizes
SIZES = {"lstm": 512, "gru": 1024} if ON_GPU else {"lstm": 8, "gru": 12}
STEPS = ("train", "score", "generate", "trace")


@pytest.fixture
def recipe(recipe):
    return recipe | {"device": "cuda" if ON_GPU else "cpu"}


@pytest.mark.parametrize("model", SIZES)
def test_a_process_trains_evaluates_and_generates_in_any_order(folder, recipe, model):
    settings = recipe | {"model": {"type": model, "hidden_size": SIZES[model]}}
    settings["training"] = recipe["training"] | {"max_steps": 4}
    run(settings, "first")
    orders = list(permutations(STEPS)) if ON_GPU else [STEPS, STEPS[::-1]]
    for number, order in enumerate(orders):
        trained = elman.load("first")
        for step in order:
            if step == "train":
                end = run(settings, f"run-{number}")[-1]
                assert end.kind == "result"
            elif step == "score":
                assert math.isfinite(trained.score("the cat sat on the dog " * 3).bits_per_byte)
            elif step == "generate":
                assert len(trained.generate("the cat", max_tokens=40, seed=1)) > 10
            else:
                trained.trace("the cat", sites=["*hidden"])


@pytest.mark.parametrize("engine", ["torch", "native", "captured"])
def test_a_model_can_be_trained_after_it_has_written(folder, recipe, engine):
    """Catches a tensor of inference mode that the model, an engine or a cache keeps."""
    run(recipe | {"training": recipe["training"] | {"max_steps": 4}}, "first")
    with nullcontext() if ON_GPU else none_kept():  # graphs, which only inference uses, are kept
        with torch.inference_mode():
            trained = elman.load("first", recipe["device"])
        assert trained.generate("the cat", max_tokens=20, engine=engine, seed=1)
        next(trained.stream("the", engine=engine, seed=1))
        trained.score("the cat sat on the dog")
        model, tokens = trained.model.train(), torch.randint(9, (2, 30), device=recipe["device"])
        model.total_loss(tokens, tokens)[0].backward()
        torch.optim.SGD(model.parameters()).step()


@pytest.mark.slow
def test_a_race_follows_training_in_the_same_process(folder, recipe):
    run(recipe, "first")
    elman.load("first").score("the cat")
    shared = recipe | {"training": recipe["training"] | {"max_steps": 3}}
    race = {"entrants": ["gru", "ngram"], "tokens": 200, "parameters": 0, "seeds": 1, "trials": 1, "recipe": shared}
    elman.compare(race, "race", workers=1)
    assert run(recipe, "second")[-1].kind == "result"
