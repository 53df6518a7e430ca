"""Training, evaluation, generation, traces and races in one process, in any order, as a notebook runs them."""

import math
from contextlib import nullcontext
from itertools import permutations
from types import SimpleNamespace

import pytest
import torch
from inference_tensors import none_kept
from whole_runs import run

import elman
from elman.pipeline.devices import choose_threads

ON_GPU = torch.cuda.is_available()
SIZES = {"lstm": 512, "layernorm-lstm": 256} if ON_GPU else {"lstm": 8, "layernorm-lstm": 12}
STEPS = ("train", "score", "generate", "trace")


@pytest.fixture
def recipe(recipe):
    if not ON_GPU:
        return recipe
    training = recipe["training"] | {"sequence_length": 48, "precision": "tf32"}  # as generated kernels need it
    return recipe | {"device": "cuda", "training": training}


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
                assert elman.train(settings, run=f"run-{number}", progress=False).step == 4
            elif step == "score":
                assert math.isfinite(trained.score("the cat sat on the dog " * 3).bits_per_byte)
            elif step == "generate":
                assert len(trained.generate("the cat", max_tokens=40, seed=1)) > 10
            else:
                trained.trace("the cat", sites=["*hidden"])


@pytest.mark.parametrize("engine", ["torch", "native", "captured"])
def test_a_model_can_be_trained_after_it_has_written(folder, recipe, engine):
    """Catches a tensor of inference mode that the model, an engine or a cache keeps."""
    device = "cpu" if engine == "native" else recipe["device"]
    run(recipe | {"training": recipe["training"] | {"max_steps": 4}}, "first")
    with nullcontext() if ON_GPU else none_kept():  # graphs, which only inference uses, are kept
        with torch.inference_mode():
            trained = elman.load("first", device)
        assert trained.generate("the cat", max_tokens=20, engine=engine, seed=1)
        next(trained.stream("the", engine=engine, seed=1))
        trained.score("the cat sat on the dog")
        model, tokens = trained.model.train(), torch.randint(9, (2, 30), device=device)
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


@pytest.mark.slow
def test_the_trained_model_is_loaded_to_a_device_with_a_number(folder, recipe, monkeypatch):
    """As `cuda:0` is."""
    monkeypatch.setattr("elman.pipeline.session.choose_device", lambda name: torch.device("cpu", 0))
    shared = recipe | {"training": recipe["training"] | {"max_steps": 1}, "device": "cpu"}
    assert elman.train(shared, run="first", progress=False).step == 1


def test_the_number_of_threads_depends_on_the_recipe_alone():
    """Catches: a large model that has one thread since a small one was loaded, or since a race."""
    before = torch.get_num_threads()

    def chosen(threads: int, width: int, device: str = "cpu") -> int:
        recipe = SimpleNamespace(threads=threads, model=SimpleNamespace(hidden_size=width))
        choose_threads(recipe, torch.device(device))
        return torch.get_num_threads()

    try:
        torch.set_num_threads(3)
        for _ in range(2):
            assert chosen(0, 1024) == 3
            assert chosen(0, 8) == 1
            assert chosen(0, 1024) == 3
            assert chosen(2, 1024) == 2
            assert chosen(0, 8, "cuda") == 3
        assert chosen(0, 8) == 1
        torch.set_num_threads(4)  # by the user
        assert chosen(0, 1024) == 4
    finally:
        torch.set_num_threads(before)
