"""An exported C library computes what the model computes: steps, generated text, readings, states.

Seen to fail: with a state that was not restored, or a window that was saved from its beginning, a random stream of
another number, a seed cut to 32 bits, a stop string found too late, a separator before the first word, a prompt that
the text did not follow, and with checksums that nobody looked at.
"""

import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from exported import (
    STRICT,
    build,
    fitted_ngram,
    language_model,
    library,
    reading_library,
    sharpened,
    tokenizer,
)

from elman.batches.examples import Ragged
from elman.compiler.cpu.standalone import StepModel
from elman.compiler.cpu.step import Runner, compile_step
from elman.errors import ElmanError
from elman.generation import GenerationConfig, generate
from elman.layers import LAYERS
from elman.models import LanguageModel, StackConfig
from elman.ops.state import tensors

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler"),
]
SETTINGS = {"attention": {"context": 6}, "s4": {"state_size": 4}, "mamba": {"state_size": 2}, "window": {"context": 3}}
SETTINGS |= {"experts": {"num_experts": 3}, "linear-attention": {"num_heads": 2, "head_size": 4}}
SETTINGS |= {"recurrent": {"cell": {"gru": {"reset": "before"}}}}
LAYERS_OF_ONE_STACK = [name for name in LAYERS if LAYERS[name].causal]


def logits_along(model, tokens):
    """Of the model, after the start token and after each of these."""
    state, found = model.initial_state(1), []
    with torch.inference_mode():
        for token in [0, *tokens]:
            logits, state = model.step(torch.tensor([token]), state)
            found.append(logits[0].clone())
    return torch.stack(found)


def steps_along(exported, tokens):
    return torch.tensor(np.stack([exported.reset(), *(exported.step(token) for token in tokens)]))


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_a_stack_of_all_causal_layers_steps_as_in_torch_and_compiles_without_a_warning(compiler):
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler}")
    torch.manual_seed(0)
    pattern = [{name: SETTINGS.get(name, {})} for name in LAYERS_OF_ONE_STACK]
    config = StackConfig.make({"hidden_size": 12, "pattern": pattern, "residual": True, "norm": "pre"})
    model = sharpened(LanguageModel(config, tokenizer("character").vocab_size))
    exported = build(f"all-{compiler}", StepModel(model), "character", flags=STRICT, compiler=compiler)
    tokens = [7 * number % model.vocab_size for number in range(40)]
    torch.testing.assert_close(steps_along(exported, tokens), logits_along(model, tokens), rtol=1e-4, atol=1e-5)
    state = exported.save()  # its sliding windows have moved
    right = [exported.step(token) for token in tokens[:9]]
    exported.reset()
    exported.restore(state)
    assert np.array_equal([exported.step(token) for token in tokens[:9]], right)


def test_an_ngram_model_steps_as_in_torch():
    exported = build("ngram", StepModel(fitted_ngram()), "word", flags=STRICT)
    tokens = [*tokenizer("word").encode("the cat ran on the mat. the").tolist(), 0, 5, 3]
    right = logits_along(fitted_ngram(), tokens)
    assert len({round(float(one.max()), 3) for one in right}) > 5  # what follows depends on what came before
    torch.testing.assert_close(steps_along(exported, tokens), right)


def test_eight_bits_are_those_of_the_native_engine():
    model, exported = language_model("bpe", 72), library("bpe", 72, "int8")
    tokens = [11 * number % 300 for number in range(30)]
    runner = Runner(compile_step(model, "int8"), [part for _, part in tensors(model.initial_state(1))])
    right = torch.stack([runner.step(torch.tensor([token]))[0].clone() for token in [0, *tokens]])
    torch.testing.assert_close(steps_along(exported, tokens), right, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(right, logits_along(model, tokens), atol=1e-4)


RULES = [
    {"temperature": 0},
    {"seed": 2**62 + 5},
    {"temperature": 0.7, "top_k": 5, "seed": 1},
    {"top_p": 0.8, "seed": 2, "stop_at_end": False},
    {"min_p": 0.05, "repetition_penalty": 1.3, "repetition_window": 7, "seed": 3},
    {"presence_penalty": 0.4, "frequency_penalty": 0.3, "seed": 4, "stop": ["e", "the c"]},
    {"seed": 5, "stop": ["\ufffd", "a\n"], "stop_at_end": False},
]


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("scheme", ["bpe", "word"])
def test_generated_text_is_that_of_the_run(rules, scheme):
    """The same tokens, log-probabilities and text, pieces of characters and stop strings included."""
    own = tokenizer(scheme)
    for prompt in ("", "the cat"):
        config = GenerationConfig.make({"max_tokens": 60, "engine": "torch", **rules})
        (right,) = generate(language_model(scheme), own, [prompt], config)
        found = library(scheme).generate(prompt, max_tokens=60, **rules)
        assert (found.tokens, found.text) == (right.tokens, right.text)
        assert sum(found.log_probs) == pytest.approx(right.log_prob, abs=1e-3)


def test_streams_of_one_seed_are_those_of_a_batch():
    config = GenerationConfig.make({"max_tokens": 30, "engine": "torch", "seed": 9})
    texts = generate(language_model(), tokenizer(), ["", "a", "b"], config)
    for number, (prompt, right) in enumerate(zip(["", "a", "b"], texts, strict=True)):
        assert library().generate(prompt, seed=9, stream=number, max_tokens=30).text == right.text


def test_readings_are_those_of_the_model():
    exported, model = reading_library()
    own = tokenizer("punctuation")
    for text in ("", "the cat", "Was it a dog, or a Cat? " * 9):
        ids = torch.tensor(own.encode(text).tolist(), dtype=torch.long).unsqueeze(0)
        with torch.no_grad():
            right = model.logits(Ragged(ids, torch.tensor([ids.shape[1]])))[0].softmax(-1)
        torch.testing.assert_close(torch.tensor(exported.classify(text)), right, rtol=1e-5, atol=1e-6)
    assert exported.labels() == ["bad", "good", "neither"]


def test_what_a_model_cannot_do_is_an_error():
    with pytest.raises(ElmanError, match="another task"):
        library().classify("a text")
    with pytest.raises(ElmanError, match="another task"):
        reading_library()[0].generate("a text")
    for wrong in ({"temperature": -1}, {"temperature": float("nan")}, {"top_p": 0}, {"stop": [""]}, {"top_k": -1}):
        with pytest.raises(ElmanError, match="out of its range"):
            library().generate("", **wrong)
    for token in (-1, 300, 2**31 - 1):
        with pytest.raises(ElmanError, match="out of its range"):
            library().step(token)


def test_a_state_is_a_value():
    exported = library()
    text = exported.generate("the ", max_tokens=5, temperature=0)
    state = exported.save()
    right = exported.generate(None, max_tokens=20, temperature=0).tokens
    exported.generate("something else", max_tokens=9)
    exported.restore(state)
    assert exported.generate(None, max_tokens=20, temperature=0).tokens == right
    assert exported.generate("the ", max_tokens=25, temperature=0).tokens == [*text.tokens, *right]


@pytest.mark.parametrize("change", ["shorter", "another number", "of another model"])
def test_a_state_that_is_not_of_the_model_is_refused(change):
    exported = library()
    state = exported.save()
    before = exported.step(3)
    others = {"shorter": state[:-1], "another number": state[:-9] + b"\1" + state[-8:]}
    other = others.get(change) or state[:8] + b"\0" * 8 + state[16:]
    with pytest.raises(ElmanError, match=r"another model|damaged"):
        exported.restore(other)
    assert np.array_equal(exported.logits, before)


def test_contexts_share_weights_and_nothing_else():
    """Two threads, each with a context of its own, write what each writes alone."""
    exported = library()
    right = [exported.generate("", max_tokens=100, seed=seed).text for seed in (1, 2)]
    first, second = exported.clone(), exported.clone()
    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            found = pool.map(
                lambda one, seed: one.generate("", max_tokens=100, seed=seed).text, (first, second), (1, 2)
            )
            assert [*found] == right
    exported.reset()
    assert not np.array_equal(exported.logits, first.logits)
    first.close()
    assert second.generate("", max_tokens=100, seed=2).text == right[1]


def test_a_clone_goes_on_from_the_same_state():
    exported = library()
    exported.generate("the cat", max_tokens=3, temperature=0)
    copy = exported.clone()
    assert copy.generate(None, max_tokens=9, seed=3).text == exported.generate(None, max_tokens=9, seed=3).text


@pytest.mark.parametrize("kind", ["empty", "short", "cut", "longer", "changed", "of another export", "missing"])
def test_a_blob_that_is_not_of_the_program_is_refused(tmp_path, kind):
    from elman.export.library import Library

    place = library().place
    blob = (place.parent / "model.bin").read_bytes()
    changed = bytearray(blob)
    changed[len(blob) // 2] ^= 1
    other = (library("word").place.parent / "model.bin").read_bytes()
    data = {"empty": b"", "short": blob[:50], "cut": blob[:-64], "longer": blob + b"\0", "changed": bytes(changed)}
    data["of another export"] = other
    path = tmp_path / "model.bin"
    if kind != "missing":
        path.write_bytes(data[kind])
    with pytest.raises(ElmanError, match=r"cannot be read|not a model|another model|damaged"):
        Library(place, path)
    if kind != "missing":
        with pytest.raises(ElmanError, match=r"not a model|another model|damaged"):
            Library(place, data[kind])


def test_it_loads_from_memory_too():
    from elman.export.library import Library

    place = library().place
    found = Library(place, (place.parent / "model.bin").read_bytes())
    assert found.generate("", seed=1).text == library().generate("", seed=1).text
