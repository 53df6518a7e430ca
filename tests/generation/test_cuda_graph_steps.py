"""Captured steps: the rules of choice, ends, broken logits, who may use them, and what is said where they cannot run.

Seen to fail: with rows that went on after their end, rows that broke after it, broken logits that were stepped over, a
penalty on the oldest tokens, a state whose parts had changed places, a graph used by two texts in turn, and a model
that its stepper kept alive.
"""

import gc
import weakref

import pytest
import torch
from torch import nn

from elman.errors import ConfigError, ElmanError
from elman.generation import cuda_graph, engine
from elman.generation.cuda_graph import CHUNK, keep
from elman.generation.engine import explain
from elman.generation.sampling import GenerationConfig
from elman.generation.stream import generate, generate_tokens
from elman.models import LanguageModel, NGram, StackConfig
from elman.ops import host_sync
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
]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def written(model, rules, prompts=((1, 2, 3), (), (4,)), done=(), **changes):
    config = GenerationConfig(**{"seed": 5, "max_tokens": 3 * CHUNK + 1, "stop_at_end": False, **rules, **changes})
    rows = [[] for _ in prompts]
    for step in generate_tokens(model, prompts, config, EOS, 28, done=done):
        for row, choice in enumerate(step):
            if choice is not None:
                rows[row].append(choice)
    return rows


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("stop_at_end", [False, True])
def test_tokens_and_probabilities_are_those_of_torch(fake, rules, stop_at_end):
    model = fake.TinyModel(sharpness=1.0, ending=2.0 if stop_at_end else 0.0)
    expected = written(model, rules, engine="torch", stop_at_end=stop_at_end)
    found = written(model, rules, engine="captured", stop_at_end=stop_at_end)
    if not stop_at_end:  # the very same operations, so the same numbers
        assert found == expected
    for ours, theirs in zip(found, expected, strict=True):  # torch goes on with fewer rows, which rounds differently
        assert tokens_of(ours) == tokens_of(theirs)
        assert [choice.log_prob for choice in ours] == pytest.approx([choice.log_prob for choice in theirs], abs=1e-5)


def tokens_of(row):
    return [choice.token for choice in row]


@pytest.mark.parametrize("count", [1, CHUNK - 1, CHUNK, CHUNK + 1])
def test_texts_may_end_within_a_chunk_or_at_its_border(fake, count):
    model = fake.TinyModel(sharpness=1.0)
    found = written(model, {}, engine="captured", max_tokens=count)
    assert found == written(model, {}, engine="torch", max_tokens=count)
    assert {len(row) for row in found} == {count}


def test_stop_texts_are_found_afterwards(fake):
    model, tokenizer = fake.TinyModel(sharpness=1.0), fake.Characters()
    config = GenerationConfig(max_tokens=60, seed=4, stop=["a", "e", "io", "u"])
    texts = [
        generate(model, tokenizer, ["b", "", "cd", "e"], config.model_copy(update={"engine": engine}))
        for engine in ("torch", "captured")
    ]
    assert [(one.text, one.tokens, one.finished) for one in texts[0]] == [
        (one.text, one.tokens, one.finished) for one in texts[1]
    ]
    assert "stop" in {one.finished for one in texts[1]}


class Replayed:
    """A stand-in for a CUDA graph: practice changes what the step writes to, as it does on a GPU."""

    made = 0

    def __init__(self, step, device):
        Replayed.made += 1
        self.replay = step
        for _ in range(cuda_graph.WARMUP_STEPS):
            step()


def test_a_graph_is_made_once_for_texts_of_a_kind(fake, monkeypatch):
    monkeypatch.setattr(cuda_graph, "capture", Replayed)
    monkeypatch.setattr(Replayed, "made", 0)
    model = fake.TinyModel(sharpness=1.0)
    for _ in range(3):
        assert written(model, RULES[5], engine="captured") == written(model, RULES[5], engine="torch")
    assert Replayed.made == 1
    for rows in (1, 2, 4):
        written(model, {}, prompts=[()] * rows, engine="captured")
    assert Replayed.made == 4
    assert len(cuda_graph._idle[model]) == cuda_graph.CACHED_GRAPHS
    model.head.weight.data = model.head.weight.data.neg()  # elsewhere, where no graph would look
    assert written(model, {}, engine="captured") == written(model, {}, engine="torch")


@pytest.mark.parametrize("graphs", [False, True])
def test_two_texts_in_turn_do_not_disturb_each_other(fake, monkeypatch, graphs):
    if graphs:
        monkeypatch.setattr(cuda_graph, "capture", Replayed)
    model = fake.TinyModel(sharpness=1.0)
    config = GenerationConfig(max_tokens=2 * CHUNK, stop_at_end=False, engine="captured", seed=1)
    other = config.model_copy(update={"seed": 2})
    alone = [list(generate_tokens(model, [[1]], one, EOS)) for one in (config, other)]
    together = zip(*(generate_tokens(model, [[1]], one, EOS) for one in (config, other)), strict=True)
    assert [list(texts) for texts in zip(*together, strict=True)] == alone


class Fragile(nn.Module):
    """Its logits break in one row after some steps: one NaN for each step since. Other rows like token 1 most."""

    def __init__(self, step, row):
        super().__init__()
        self.register_buffer("limit", torch.tensor(step))
        self.register_buffer("row", torch.tensor(row))

    def initial_state(self, batch):
        return torch.zeros(batch, dtype=torch.long)

    def step(self, token, state):
        places = torch.arange(9).expand(len(token), -1)
        bad = (places < (state - self.limit).unsqueeze(1)) & (torch.arange(len(token)) == self.row).unsqueeze(1)
        logits = (places == 1) & (torch.arange(len(token)) != self.row).unsqueeze(1)
        return logits.float().masked_fill(bad, torch.nan), state + 1

    def forward(self, tokens, state, lengths):
        logits, state = self.step(tokens[:, 0], state)
        return logits.unsqueeze(1), state


@pytest.mark.parametrize("step", [1, 5, CHUNK - 1, CHUNK, CHUNK + 3])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_broken_logits_are_told_as_torch_tells_them(step, temperature):
    told = []
    for kind in ("torch", "captured"):
        config = GenerationConfig(temperature=temperature, seed=1, engine=kind, stop_at_end=False)
        steps = generate_tokens(Fragile(step, 1), [[]] * 3, config, EOS)
        before = []
        with pytest.raises(ElmanError, match="invalid logits in row 1: 1 NaN and 0 inf among 9") as error:
            before.extend(steps)
        told.append((before, str(error.value)))
    assert told[0] == told[1]
    assert len(told[1][0]) == step + 1


def test_rows_that_are_over_may_break():
    config = GenerationConfig(temperature=0, engine="captured", max_tokens=9)
    steps = list(generate_tokens(Fragile(1, 0), [[], []], config, EOS))
    assert [[choice and choice.token for choice in step] for step in steps] == [[EOS, 1], *[[None, 1]] * 8]


class Counting(nn.Module):
    """A model of somebody else, with one thing in its step."""

    def __init__(self, disturb):
        super().__init__()
        self.weight, self.disturb = nn.Parameter(torch.randn(7, 7)), disturb

    def initial_state(self, batch):
        return torch.zeros(batch, 1)

    def forward(self, tokens, state, lengths):
        return self.weight[tokens], state

    def step(self, token, state):
        return self.weight[token], self.disturb(token, state)


@pytest.mark.parametrize(
    ("disturb", "reason"),
    [
        (lambda token, state: state + token.max().item(), "item|_local_scalar_dense"),
        (lambda token, state: state + len(token[token > 1]), "nonzero|dynamic|index"),
        (lambda token, state: state + token.tolist()[0], "tolist|item|_local_scalar_dense"),
        (lambda token, state: state + torch.tensor([[1.0]] * len(token)), "copied from the host"),
        (lambda token, state: state.new_zeros(len(state), state.shape[1] + 1), r"changes from \(2, 1\)"),
    ],
)
def test_a_step_that_needs_the_host_stays_with_torch_and_says_why(disturb, reason):
    model = Counting(disturb)
    assert cuda_graph.obstacle(Counting(lambda token, state: state + token.unsqueeze(1))) == ""
    with pytest.raises(ConfigError, match=f"captured cannot run: .*({reason}).*; use auto or torch"):
        explain(model, GenerationConfig(engine="captured"))
    assert engine._captured(model, GenerationConfig()).name == "torch"


def test_an_n_gram_model_on_a_gpu_is_stepped_without_a_graph(monkeypatch):
    """Catches: a capture that is attempted, fails and warns at each generation."""
    monkeypatch.setattr(engine, "device_of", lambda model: torch.device("cuda"))
    assert "searches its tables" in cuda_graph.obstacle(NGram(NGram.Config(order=3), vocab_size=7))
    assert explain(NGram(NGram.Config(order=3), vocab_size=7)).startswith("torch: ")


def test_auto_takes_it_on_a_gpu(fake, monkeypatch):
    model = LanguageModel(StackConfig.make({"hidden_size": 4}), 7)
    assert explain(model, GenerationConfig(engine="captured")).startswith(
        "captured: the steps of a CUDA graph, run one by"
    )
    assert explain(model).startswith("torch: compilation does not pay off")
    monkeypatch.setattr(engine, "device_of", lambda model: torch.device("cuda"))
    assert explain(model) == "captured: a CUDA graph of a step"
    assert explain(model, rows=64) == "captured: a CUDA graph of a step"
    few = GenerationConfig(max_tokens=CHUNK - 1)
    assert explain(model, few) == f"torch: capturing does not pay off for fewer than {CHUNK} tokens"
    assert explain(model, GenerationConfig(engine="torch")) == "torch: as requested"
    with pytest.raises(ConfigError, match="native cannot run: the model is on cuda"):
        explain(model, GenerationConfig(engine="native"))
    with record("*"):
        assert explain(model) == "torch: activations are being recorded"
        model.step(torch.tensor([1]), model.initial_state(1))
    assert explain(fake.TableModel(torch.zeros(3, 3))) == "torch: the model is not a torch module"


def test_parts_of_a_state_may_change_places():
    old = (torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([3.0, 4.0]))
    first, second, both = old
    keep(old, (second, first, both.flip(0)))
    assert [part.tolist() for part in old] == [[2.0], [1.0], [4.0, 3.0]]
    keep(old, (first, both[:1], both))
    assert [part.tolist() for part in old] == [[2.0], [4.0], [4.0, 3.0]]


@pytest.mark.slow
def test_a_model_that_is_gone_takes_its_steps_with_it(fake):
    model = fake.TinyModel()
    written(model, {}, engine="captured")
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


@needs_gpu
def test_a_graph_sees_weights_that_change_and_goes_with_its_model(fake):
    model = fake.TinyModel(sharpness=1.0).cuda()
    first = written(model, {}, engine="captured")
    assert [*map(tokens_of, first)] == [*map(tokens_of, written(model, {}, engine="torch"))]
    (stepper,) = cuda_graph._idle[model].values()
    with torch.no_grad():
        model.head.weight.neg_()
    again = written(model, {}, engine="captured")
    assert again != first
    assert [*map(tokens_of, again)] == [*map(tokens_of, written(model, {}, engine="torch"))]
    assert list(cuda_graph._idle[model].values()) == [stepper]
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


@needs_gpu
def test_what_cannot_be_captured_goes_step_by_step_with_a_warning():
    host_sync.warn_of_eager_steps.cache_clear()  # each reason is told once in a process

    def step():
        torch.ones(1, device="cuda").item()

    with pytest.warns(UserWarning, match="without a CUDA graph, more slowly: capture failed"):
        assert cuda_graph.capture(step, torch.device("cuda", 0)) is None
    assert torch.ones(2, device="cuda").sum().item() == 2
