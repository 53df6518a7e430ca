"""The native engine writes what torch writes, is used where it pays, and says why where it is not.

Seen to fail: with a penalty taken twice for a token that came twice, a top-k that kept all of equal tokens, a state
that was one step behind after the end of a chunk, and weights that were not packed again after training.
"""

import gc
import sys
import weakref
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.compiler.cpu import build
from elman.compiler.cpu.step import History, Rules, Runner
from elman.errors import ConfigError, ElmanError
from elman.generation import engine
from elman.generation.engine import CHUNK, MIN_TOKENS_TO_COMPILE, explain, rules_of
from elman.generation.sampling import GenerationConfig
from elman.generation.stream import generate_tokens
from elman.ops.taps import record

EOS = 0
RULES = [
    {},
    {"temperature": 0},
    {"temperature": 0.7, "top_k": 5},
    {"top_p": 0.6},
    {"temperature": 1.3, "top_k": 20, "top_p": 0.8},
    {"repetition_penalty": 1.7, "repetition_window": 5},
    {"temperature": 0, "repetition_penalty": 1.3},
    {"min_p": 0.1, "top_k": 9},
    {"presence_penalty": 1.5, "frequency_penalty": 0.5, "repetition_penalty": 1.2},
    {"temperature": 0, "frequency_penalty": 0.75, "logit_bias": {3: 1.0, 9: -100.0}},
]


@pytest.fixture(scope="module")
def model(fake):
    return fake.TinyModel(sharpness=1.0)


def written(model, config, prompts=((1, 2, 3), (), (4,)), **changes):
    config = GenerationConfig(**{"seed": 5, "max_tokens": 3 * CHUNK + 1, "stop_at_end": False, **config, **changes})
    rows = [[] for _ in prompts]
    for step in generate_tokens(model, prompts, config, EOS, 28):
        for row, choice in enumerate(step):
            if choice is not None:
                rows[row].append(choice)
    return rows


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("stop_at_end", [False, True])
def test_tokens_and_probabilities_are_those_of_torch(model, rules, stop_at_end):
    with torch.no_grad():
        model.head.bias[EOS] = 3.0 if stop_at_end else 0.0
    expected = written(model, rules, engine="torch", stop_at_end=stop_at_end)
    found = written(model, rules, engine="native", stop_at_end=stop_at_end)
    for ours, theirs in zip(found, expected, strict=True):
        assert [choice.token for choice in ours] == [choice.token for choice in theirs]
        differences = [abs(a.log_prob - b.log_prob) for a, b in zip(ours, theirs, strict=True)]
        assert max(differences) < 1e-5


class Plain(torch.nn.Module):
    """The logits are what the state says: for trying the rules of choice alone."""

    def __init__(self, vocab=40):
        super().__init__()
        self.vocab = vocab

    def initial_state(self, batch):
        return torch.zeros(batch, self.vocab)

    def step(self, token, state):
        return state * 1.0, state * 1.0


@pytest.fixture(scope="module")
def plain():
    from elman.compiler.cpu.step import compile_step

    return compile_step(Plain())


@settings(max_examples=200)
@given(
    logits=st.lists(st.sampled_from([-torch.inf, -2.0, -1.0, 0.0, 0.5, 1.0, 3.0]), min_size=40, max_size=40),
    top_k=st.integers(0, 45),
    top_p=st.floats(0.05, 1),
    temperature=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    penalty=st.sampled_from([1.0, 1.5]),
    uniform=st.floats(0, 1, exclude_max=True),
    recent=st.lists(st.integers(-1, 39), min_size=6, max_size=6),
    min_p=st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    presence=st.sampled_from([0.0, 0.5, -1.0]),
    frequency=st.sampled_from([0.0, 0.25]),
    written=st.lists(st.integers(0, 39), max_size=10),
    bias=st.dictionaries(st.integers(0, 39), st.sampled_from([-100.0, 0.5, 2.0]), max_size=3),
)
def test_choices_among_equals_and_impossible_tokens_are_those_of_torch(
    plain, logits, top_k, top_p, temperature, penalty, uniform, recent, min_p, presence, frequency, written, bias
):
    from elman.generation.sampling import process_logits, sample

    logits = torch.tensor([logits])
    if not logits.isfinite().any():
        return
    config = GenerationConfig(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=penalty,
        repetition_window=6,
        presence_penalty=presence,
        frequency_penalty=frequency,
        logit_bias=bias,
    )
    counts = torch.tensor(written, dtype=torch.long).bincount(minlength=40).unsqueeze(0)
    shaped = process_logits(logits, config, torch.tensor([recent]), None, counts)
    near = {
        int(sample(shaped, torch.tensor([place]).double().clamp(0, 1))) for place in (uniform - 1e-6, uniform + 1e-6)
    }
    expected = {int(shaped.argmax())} if temperature == 0 else near
    runner = Runner(plain, [logits])
    runner.output.copy_(logits)
    rules = rules_of(config, 40, EOS, EOS)
    history = History(rules, recent)
    for one in written:
        history.count(one)
    (token,), _ = runner.run(rules, history, torch.tensor([uniform]).double(), final=True)
    assert len(near) > 1 or token in expected  # on the very border of two tokens, either is right
    assert shaped[0, token] > -torch.inf


def test_a_peak_is_found_wherever_it_stands():
    """Catches a quarter of the tokens left out: far below the peak, exponentials overflow."""
    from elman.compiler.cpu.step import compile_step

    program = compile_step(Plain(203))
    for place in (0, 17, 40, 63, 64, 130, 191, 192, 202):
        logits = torch.zeros(1, 203)
        logits[0, place] = 200.0
        runner = Runner(program, [logits])
        runner.output.copy_(logits)
        rules = Rules(203)
        found = runner.run(rules, History(rules), torch.tensor([0.5]).double(), final=True)
        assert found == ([place], [pytest.approx(0, abs=1e-6)])


def test_auto_takes_it_for_long_texts(fake):
    model = fake.TinyModel()
    long = GenerationConfig(max_tokens=MIN_TOKENS_TO_COMPILE)
    assert explain(model) == f"torch: compilation does not pay off for fewer than {MIN_TOKENS_TO_COMPILE} tokens"
    assert explain(model, long.model_copy(update={"engine": "torch"})) == "torch: as requested"
    assert explain(model, long, rows=2) == explain(model, long) == f"native: {build.vectors()}, fp32"
    assert explain(model).startswith("native")  # now that there is a program
    steps = len(model.rows_seen)
    written(model, {}, prompts=[()], engine="auto")
    assert len(model.rows_seen) == steps  # nothing went through torch


def test_a_short_prompt_is_stepped_through_and_a_long_one_read_at_once(fake, monkeypatch):
    """The same text either way. Catches: a prompt without its start; one stepped through however long it is."""
    model, prompt = fake.TinyModel(), (3, 1, 4, 1, 5)

    def tokens(kind):
        (row,) = written(model, {}, prompts=[prompt], engine=kind)
        return [choice.token for choice in row]

    expected = tokens("torch")
    each = engine._bytes(model, "fp32")
    for known, stepped in ((len(prompt), False), (len(prompt) + 1, True)):  # the start of the text is known too
        monkeypatch.setattr(engine, "MAX_BYTES_OF_STEPS", known * each)
        steps = len(model.rows_seen)
        assert tokens("native") == expected
        assert (len(model.rows_seen) == steps) == stepped


def test_recording_goes_through_torch(model):
    with record("*") as _:
        assert (
            explain(model, GenerationConfig(max_tokens=MIN_TOKENS_TO_COMPILE))
            == "torch: activations are being recorded"
        )
        torch_only = GenerationConfig(engine="native")
        with pytest.raises(ConfigError, match="native cannot run: activations are being recorded; use auto or torch"):
            explain(model, torch_only)
        from elman.ops.taps import tap

        tap("something", torch.zeros(1, 1))


def test_what_has_no_machine_code_stays_with_torch_and_says_why(fake):
    class Odd(fake.TinyModel):
        def step(self, token, state):
            logits, state = super().step(token, state)
            return logits.cumsum(-1), state

    odd = Odd()
    assert (
        explain(odd, GenerationConfig(max_tokens=MIN_TOKENS_TO_COMPILE)) == "torch: operation cumsum is not supported"
    )
    assert written(odd, {}, max_tokens=5) == written(odd, {}, max_tokens=5, engine="torch")
    with pytest.raises(ConfigError, match="cumsum is not supported"):
        written(odd, {}, engine="native")
    assert explain(fake.TableModel(torch.zeros(3, 3))) == "torch: the model is not a torch module"


def test_without_a_compiler_torch_steps_and_a_warning_comes_once(fake, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    build.compiler.cache_clear()
    try:
        with pytest.warns(UserWarning, match="in torch, more slowly: there is no C\\+\\+ compiler"):
            explain(fake.TinyModel(), GenerationConfig(max_tokens=MIN_TOKENS_TO_COMPILE))
        assert explain(fake.TinyModel(), GenerationConfig(max_tokens=MIN_TOKENS_TO_COMPILE)).startswith(
            "torch: there is no C++"
        )
    finally:
        build.compiler.cache_clear()


def test_changed_weights_are_taken_over(fake):
    model = fake.TinyModel()
    before = written(model, {}, engine="native")
    with torch.no_grad():
        model.head.weight.neg_()
    after = written(model, {}, engine="native")
    assert after != before
    assert [c.token for c in after[0]] == [c.token for c in written(model, {}, engine="torch")[0]]


def test_broken_logits_are_told_as_torch_tells_them(fake):
    model = fake.TinyModel()
    with torch.no_grad():
        model.cell.weight_hh.fill_(torch.nan)
        model.cell.weight_hh[:, 0] = 0
    texts = []
    for kind in ("torch", "native"):
        with pytest.raises(ElmanError, match="invalid logits in row 0") as told:
            written(model, {}, prompts=[()], engine=kind)
        texts.append(str(told.value))
    assert texts[0] == texts[1]


def test_eight_bits_write_almost_the_same(fake):
    model = fake.TinyModel(width=160, sharpness=0.3)
    exact, rounded = (written(model, {"temperature": 0}, engine="native", weights=form) for form in ("fp32", "int8"))
    assert explain(model, GenerationConfig(engine="native", weights="int8")).endswith("int8")
    assert exact != rounded
    assert abs(exact[0][0].log_prob - rounded[0][0].log_prob) < 0.05


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_a_long_text_takes_no_more_memory_than_a_short_one(model):
    """Catches a runner that kept its outputs. `python -m benchmarks.streaming` does a million steps."""
    config = GenerationConfig(max_tokens=20_000, stop_at_end=False, engine="native", seed=1)
    pages = []
    for count, _ in enumerate(generate_tokens(model, [[]], config, EOS), 1):
        if count in (5_000, config.max_tokens):
            pages.append(int(Path("/proc/self/statm").read_text().split()[1]))
    assert (pages[1] - pages[0]) * 4096 < 2**20


def test_a_model_that_is_gone_takes_its_program_with_it(fake):
    model = fake.TinyModel()
    written(model, {}, engine="native")
    gone, program = weakref.ref(model), weakref.ref(engine._compiled[model]["fp32"].program)
    del model
    gc.collect()
    assert gone() is None
    assert program() is None


def test_it_is_told_where_weights_are_not_rounded(fake):
    """Catches: "int8" was said of a model whose matrices all are too small for it; by torch it was passed over."""
    model = fake.TinyModel()
    told = explain(model, GenerationConfig(engine="native", weights="int8"))
    assert told == f"native: {build.vectors()}, fp32: no matrix is large enough for int8"
    with pytest.warns(UserWarning, match="not quantized to int8.*torch: as requested"):
        written(model, {"temperature": 0}, engine="torch", weights="int8")


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_an_excluded_token_is_never_drawn(model, rules):
    config = GenerationConfig(**{"seed": 5, "max_tokens": 30, "stop_at_end": False, **rules})
    with torch.no_grad():
        model.head.bias[7] = 5.0  # by far the most probable
        found = {}
        for engine in ("torch", "native", "captured"):
            chosen = config.model_copy(update={"engine": engine})
            found[engine] = [step[0].token for step in generate_tokens(model, [[1]], chosen, EOS, 28, excluded=7)]
            assert 7 in [step[0].token for step in generate_tokens(model, [[1]], chosen, EOS, 28)]
        model.head.bias[7] = 0.0
    assert 7 not in found["torch"]
    assert found["torch"] == found["native"] == found["captured"]
