"""Streaming: the same text however it is asked for, nothing half, nothing that grows."""

import resource
import time
from importlib import import_module

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.errors import ElmanError
from elman.generation.detokenize import find_stop, held_back
from elman.generation.sampling import GenerationConfig
from elman.generation.stream import Generated, generate, generate_tokens, stream

EOS = 0
GREEDY = {"temperature": 0}


def chosen_tokens(model, prompts, config, **options):
    """All tokens of each row."""
    rows = [[] for _ in prompts]
    for step in generate_tokens(model, prompts, config, EOS, **options):
        for row, choice in enumerate(step):
            if choice is not None:
                rows[row].append(choice.token)
    return rows


prompts_of_tokens = st.lists(st.lists(st.integers(1, 28), max_size=6), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(prompts_of_tokens, st.integers(0, 2**40), st.sampled_from([1.0, 3.0]))
def test_a_prompt_becomes_the_same_text_in_any_company(fake, prompts, seed, penalty):
    model = fake.TinyModel(sharpness=1.0, ending=2.0)  # some rows end early
    config = GenerationConfig(max_tokens=12, seed=seed, repetition_penalty=penalty, repetition_window=4)
    together = chosen_tokens(model, prompts, config)
    for row, prompt in enumerate(prompts):
        assert chosen_tokens(model, [prompt], config, streams=[row]) == [together[row]]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(prompts_of_tokens)
def test_tokens_and_their_probabilities_are_those_of_a_plain_loop(fake, prompts):
    model = fake.TinyModel().eval()
    config = GenerationConfig(max_tokens=10, temperature=0)
    steps = list(generate_tokens(model, prompts, config, EOS))
    for row, prompt in enumerate(prompts):
        history, found = [EOS, *prompt], [step[row] for step in steps if step[row] is not None]
        for count, choice in enumerate(found):
            logits, _ = model.forward(torch.tensor([history]), model.initial_state(1), torch.tensor([len(history)]))
            log_probs = logits[0, -1].detach().log_softmax(-1)
            assert choice.token == int(log_probs.argmax())
            assert choice.log_prob == pytest.approx(float(log_probs[choice.token]), abs=1e-4)
            assert (choice.token == EOS) <= (count == len(found) - 1)
            history.append(choice.token)
        assert history[-1] == EOS or len(found) == 10


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.text("abc", max_size=5), st.integers(0, 2**40), st.lists(st.text("abcd ", min_size=1, max_size=3), max_size=3)
)
def test_the_joined_stream_is_the_generated_text(fake, prompt, seed, stops):
    model, tokenizer = fake.TinyModel(sharpness=1.0), fake.Characters()
    config = GenerationConfig(max_tokens=30, seed=seed, stop=stops)
    pieces = list(stream(model, tokenizer, prompt, config))
    (generated,) = generate(model, tokenizer, [prompt], config)
    assert "".join(pieces) == generate(model, tokenizer, prompt, config) == generated.text
    assert all(pieces)
    whole = tokenizer.decode([token for token in generated.tokens if token != EOS])
    assert whole.startswith(generated.text)
    assert not any(stop in generated.text for stop in stops)
    if generated.finished == "stop":
        assert any(whole[len(generated.text) :].startswith(stop) for stop in stops)
    else:
        assert generated.text == whole
        assert (generated.finished == "end") == (generated.tokens[-1:] == [EOS])
        assert generated.finished == "end" or len(generated.tokens) == 30


def test_all_prompts_of_a_list_are_written(fake):
    model, tokenizer = fake.TinyModel(), fake.Characters()
    config = GenerationConfig(max_tokens=20, **GREEDY)
    prompts = ["", "abc", "a", "hello there"]
    assert [one.text for one in generate(model, tokenizer, prompts, config)] == [
        generate(model, tokenizer, prompt, config) for prompt in prompts
    ]
    assert generate(model, tokenizer, [], config) == []


def test_the_log_probability_is_that_of_the_tokens_with_the_end(fake):
    tokenizer = fake.Characters("ab")
    model = fake.TableModel(torch.tensor([[0.0, 0.9, 0.1], [0.1, 0.1, 0.8], [0.6, 0.2, 0.2]]).log())
    (one,) = generate(model, tokenizer, [""], GenerationConfig(**GREEDY))
    assert one == Generated("ab", [1, 2, EOS], pytest.approx(float(torch.tensor(0.9 * 0.8 * 0.6).log())), "end")


def test_settings_do_not_change_the_log_probability(fake):
    model, tokenizer = fake.TinyModel(), fake.Characters()
    plain, shaped = (
        generate(model, tokenizer, ["ab"], GenerationConfig(max_tokens=1, top_k=1, temperature=temperature))[0]
        for temperature in (1.0, 0.2)
    )
    assert plain.log_prob == shaped.log_prob < 0


@pytest.mark.parametrize("text", ["Grüße", "日本語", "🙂👍🏽", "a\u0301"])
def test_never_half_a_character(fake, text):
    tokenizer = fake.Bytes()
    model = ScriptedModel([byte + 1 for byte in text.encode()], tokenizer.vocab_size)
    pieces = list(stream(model, tokenizer, "", GenerationConfig(**GREEDY)))
    assert pieces == list(text)
    cut = list(stream(model, tokenizer, "", GenerationConfig(max_tokens=len(text.encode()) - 1, **GREEDY)))
    assert "".join(cut).removesuffix("\N{REPLACEMENT CHARACTER}") == text[:-1]


class ScriptedModel:
    """Writes a fixed sequence of tokens, then the end; its state is how far it has come."""

    def __init__(self, tokens, vocab):
        self.tokens, self.vocab = torch.tensor([*tokens, EOS]), vocab

    def initial_state(self, batch):
        return torch.zeros(batch, dtype=torch.long)

    def step(self, token, state):
        return 50.0 * torch.nn.functional.one_hot(self.tokens[state], self.vocab), state + 1

    def forward(self, tokens, state, lengths):
        logits, _ = self.step(tokens[:, 0], state)
        return logits.unsqueeze(1).expand(-1, tokens.shape[1], -1), state + 1


@settings(max_examples=200, deadline=None)
@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_text_ends_before_the_stop_text_that_is_complete_first(fake, text, stops):
    tokenizer = fake.Characters()
    model = ScriptedModel(tokenizer.encode(text), tokenizer.vocab_size)
    ends = [(end, start) for stop in stops for end, start in occurrences(text, stop)]
    expected = text[: min(ends)[1]] if ends else text
    pieces = list(stream(model, tokenizer, "", GenerationConfig(stop=stops, **GREEDY)))
    assert "".join(pieces) == expected
    (one,) = generate(model, tokenizer, [""], GenerationConfig(stop=stops, **GREEDY))
    assert (one.text, one.finished) == (expected, "stop" if ends else "end")
    assert len(one.tokens) == (min(ends)[0] if ends else len(text) + 1)


def occurrences(text, stop):
    return [(at + len(stop), at) for at in range(len(text)) if text.startswith(stop, at)]


def test_text_is_held_back_only_while_it_may_become_a_stop_text(fake):
    tokenizer = fake.Characters()
    model = ScriptedModel(tokenizer.encode("ab--c---"), tokenizer.vocab_size)
    pieces = list(stream(model, tokenizer, "", GenerationConfig(stop=["--->"[:3]], **GREEDY)))
    assert pieces == ["a", "b", "--c"]
    assert held_back("xab", ["abc", "b"]) == 2
    assert find_stop("xabc", ["abc", "b"]) == 2


def test_a_stop_text_of_the_prompt_does_not_count(fake):
    tokenizer = fake.Characters()
    model = ScriptedModel(tokenizer.encode("bc"), tokenizer.vocab_size)
    assert generate(model, tokenizer, "xa", GenerationConfig(stop=["ab", "xa"], **GREEDY)) == "bc"


def test_a_continued_word_text_begins_with_its_space(fake):
    tokenizer = fake.Words(["the", "cat", "sat", "down"])
    model = ScriptedModel(tokenizer.encode("sat down"), tokenizer.vocab_size)
    assert generate(model, tokenizer, "the cat", GenerationConfig(**GREEDY)) == " sat down"
    assert generate(model, tokenizer, "", GenerationConfig(**GREEDY)) == "sat down"


def test_a_decoder_that_lags_behind_does_not_repeat_the_prompt(fake, monkeypatch):
    class Late:
        """Gives each character one push later."""

        def __init__(self, tokenizer):
            self.tokenizer, self.last = tokenizer, ""

        def push(self, token):
            text, self.last = self.last, self.tokenizer.decode([token])
            return text

        def flush(self):
            return self.last

    monkeypatch.setattr("elman.tokenizers.StreamDecoder", Late)
    tokenizer = fake.Characters()
    model = ScriptedModel(tokenizer.encode("cde"), tokenizer.vocab_size)
    assert generate(model, tokenizer, "ab", GenerationConfig(**GREEDY)) == "cde"
    assert generate(model, tokenizer, "ab", GenerationConfig(stop=["e"], **GREEDY)) == "cd"
    assert list(stream(model, tokenizer, "ab", GenerationConfig(max_tokens=1, **GREEDY))) == ["c"]


def test_going_on_after_the_end_starts_a_new_line_and_a_new_text(fake):
    words = fake.Words(["a", "b"])
    twice = ScriptedModel([1, 2, EOS, 2, 1], words.vocab_size)
    assert generate(twice, words, "", GenerationConfig(max_tokens=5, stop_at_end=False, **GREEDY)) == "a b\nb a"
    tokenizer = fake.Characters()
    model = fake.script("abc", tokenizer)
    config = GenerationConfig(max_tokens=9, stop_at_end=False, **GREEDY)
    assert generate(model, tokenizer, "", config) == "abc\nabc\na"
    assert generate(model, tokenizer, [""], config)[0].finished == "length"


def test_rows_that_are_over_are_no_longer_computed(fake):
    tokenizer = fake.Characters()
    model = fake.TinyModel(sharpness=1.0)
    config = GenerationConfig(max_tokens=40, seed=4, stop=["a", "e", "i", "o", "u"])
    results = generate(model, tokenizer, ["b", "", "cd", "e"] * 3, config)
    steps = model.rows_seen[3:]  # after the prompts
    expected = [sum(len(one.tokens) > count for one in results) for count in range(1, 40)]
    assert steps == [rows for rows in expected if rows]
    assert steps[0] > steps[-1] > 0


def test_a_long_prompt_is_read_in_parts_with_the_same_result(fake, monkeypatch):
    model = fake.TinyModel()
    prompts = [[1 + (7 * i) % 28 for i in range(length)] for length in (0, 4, 5, 23)]
    config = GenerationConfig(max_tokens=15, seed=3)
    whole = chosen_tokens(model, prompts, config)
    monkeypatch.setattr(import_module("elman.generation.stream"), "PREFILL", 5)
    assert chosen_tokens(model, prompts, config) == whole


def test_the_penalty_sees_the_prompt_and_only_the_window(fake):
    table = torch.zeros(5, 5)
    table[:, 1], table[:, 2], table[:, 3] = 3.0, 2.0, 1.0
    model = fake.TableModel(table)

    def first(prompt, window, count=1):
        config = GenerationConfig(
            max_tokens=count, repetition_penalty=10, repetition_window=window, stop_at_end=False, **GREEDY
        )
        return chosen_tokens(model, [prompt], config)[0]

    assert first([], 4) == [1]
    assert first([1], 4) == [2]
    assert first([1, 4, 4], 2) == [1]
    assert first([], 2, 6) == [1, 2, 3, 1, 2, 3]


def test_a_seed_repeats_the_text_and_none_varies_it(fake):
    model, tokenizer = fake.TinyModel(sharpness=0.5), fake.Characters()
    config = GenerationConfig(max_tokens=40, seed=1, stop_at_end=False)
    free = config.model_copy(update={"seed": None})
    assert generate(model, tokenizer, "a", config) == generate(model, tokenizer, "a", config)
    assert generate(model, tokenizer, "a", free) != generate(model, tokenizer, "a", free)
    twins = generate(model, tokenizer, ["a", "a"], config)
    assert twins[0].text != twins[1].text


def test_the_model_is_as_before_even_in_the_middle(fake):
    model = fake.TinyModel().train()
    model.cell.eval()
    before = [part.training for part in model.modules()]
    steps = generate_tokens(model, [[1]], GenerationConfig(max_tokens=5, stop_at_end=False), EOS)
    next(steps)
    next(steps)
    assert [part.training for part in model.modules()] == before
    assert not torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()
    assert model.head(torch.ones(16)).requires_grad


def test_nothing_is_kept_for_gradients(fake):
    class Watched(fake.TinyModel):
        def step(self, token, state):
            assert torch.is_inference_mode_enabled()
            assert not self.dropout.training
            return super().step(token, state)

    generate(Watched().train(), fake.Characters(), "ab", GenerationConfig(max_tokens=3))


@pytest.mark.parametrize(("bad", "named"), [(torch.nan, "1 NaN"), (torch.inf, "1 inf")])
def test_broken_logits_are_refused_and_an_impossible_token_is_not(fake, bad, named):
    tokenizer = fake.Characters("abc")
    table = torch.zeros(4, 4)
    table[2, 3] = bad
    with pytest.raises(ElmanError, match=f"row 1.*{named}"):
        generate(fake.TableModel(table), tokenizer, ["a", "b"], GenerationConfig(seed=1, max_tokens=1))
    table[2, 3] = -torch.inf
    table[2, 0] = -torch.inf
    assert generate(fake.TableModel(table), tokenizer, ["b"], GenerationConfig(seed=1, max_tokens=9))
    table[2, :] = -torch.inf
    with pytest.raises(ElmanError, match="4 inf"):
        generate(fake.TableModel(table), tokenizer, ["b"], GenerationConfig(seed=1, max_tokens=9))


class Echo:
    """The smallest recurrent model: the state fades, and each token adds its row of a table to it."""

    def __init__(self, vocab):
        self.table = torch.randn(vocab, vocab, generator=torch.Generator().manual_seed(0))

    def initial_state(self, batch):
        return self.table.new_zeros(batch, self.table.shape[1])

    def step(self, token, state):
        state = 0.5 * state + self.table[token]
        return state, state

    def forward(self, tokens, state, lengths):
        assert lengths.tolist() == [tokens.shape[1]]
        for time_step in range(tokens.shape[1]):
            logits, state = self.step(tokens[:, time_step], state)
        return logits.unsqueeze(1).expand(-1, tokens.shape[1], -1), state


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text(fake):
    tokenizer = fake.Characters()
    model = Echo(tokenizer.vocab_size)

    def kilobytes_after(tokens):
        config = GenerationConfig(max_tokens=tokens, seed=0, stop_at_end=False, stop=["a.b"])
        start = time.monotonic()
        length = sum(len(piece) for piece in stream(model, tokenizer, "a", config))
        print(f"{tokens} tokens: {tokens / (time.monotonic() - start):.0f} a second")
        assert length == tokens
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    small, large = kilobytes_after(10_000), kilobytes_after(100_000)
    print(f"the peak of memory grew by {large - small} KiB")
    assert large - small < 2_000  # the tokens alone, kept by mistake, would take more than this


def test_unknown_is_drawn_only_on_request(fake):
    words = fake.Words(["a", "<unk>"])
    words.unk_id = 2
    model = fake.TableModel(torch.tensor([[0.0, 0.0, 9.0]] * 3))
    asked = GenerationConfig(max_tokens=9, seed=0, unknown=True)
    for config, expected in ((asked, True), (asked.model_copy(update={"unknown": False}), False)):
        assert ("<unk>" in generate(model, words, "a", config)) is expected
        assert ("<unk>" in generate(model, words, ["a"], config)[0].text) is expected
    words.unk_id = EOS  # as in GPT-2, whose one mark is both
    assert generate(model, words, "a", asked.model_copy(update={"unknown": False})).split() == ["<unk>"] * 9
