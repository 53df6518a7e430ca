"""Rows of compiled steps: their tokens are drawn and scored as torch does it; errors say what is wrong."""

import os
import signal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from elman.compiler.cpu.step import History, RowRunner, Rules, Runner, Turn, compile_step
from elman.generation.engine import rules_of
from elman.generation.sampling import GenerationConfig, process_logits, sample
from elman.models import LanguageModel, StackConfig
from elman.ops.state import leaves

VOCABULARY = 50
EOS = 0


class Echo(nn.Module):
    """The logits are the state; the token is counted."""

    def initial_state(self, batch):
        return torch.zeros(batch, VOCABULARY), torch.zeros(batch, dtype=torch.long)

    def step(self, token, state):
        logits, count = state
        return logits * 1.0, (logits * 1.0, count + token)


@pytest.fixture(scope="module")
def program():
    return compile_step(Echo())


def rows_with(program, logits, threads=1):
    runner = RowRunner(program, threads)
    rows = [runner.add((one.unsqueeze(0), torch.tensor([0])), one.unsqueeze(0)) for one in logits]
    return runner, rows


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rules=st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "temperature": st.sampled_from([0.0, 0.5, 2.0]),
                "top_k": st.integers(1, 60),
                "top_p": st.floats(0.1, 1),
                "min_p": st.floats(0.01, 0.5),
                "repetition_penalty": st.floats(0.5, 2),
                "presence_penalty": st.floats(-2, 2),
                "frequency_penalty": st.floats(-2, 2),
                "logit_bias": st.dictionaries(st.integers(0, VOCABULARY - 1), st.floats(-100, 100), max_size=4),
            },
        ),
        min_size=1,
        max_size=5,
    ),
    threads=st.integers(1, 3),
)
def test_each_row_is_sampled_by_its_own_rules_as_torch_does(program, seed, rules, threads):
    """Two tokens of each row, so that the second knows of the first."""
    random = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(len(rules), VOCABULARY, generator=random)
    runner, rows = rows_with(program, logits, threads)
    configs = [GenerationConfig(repetition_window=5, **one) for one in rules]
    texts = [[7, 7, 3] for _ in rows]
    for row, config, text in zip(rows, configs, texts, strict=True):
        runner.set_rules(row, rules_of(config, VOCABULARY, EOS, EOS, excluded=9), text)
    counts = torch.zeros(len(rows), VOCABULARY, dtype=torch.long)
    for _ in range(2):
        uniforms = torch.rand(len(rows), generator=random, dtype=torch.float64)
        found = runner.sample(rows, uniforms.tolist(), top=3)
        for number, (choice, config) in enumerate(zip(found, configs, strict=True)):
            own, recent = logits[number : number + 1], torch.tensor([texts[number][-5:]])
            shaped = process_logits(own, config, recent, 9, counts[number : number + 1])
            near = [uniforms[number : number + 1] + step for step in (-1e-5, 0, 1e-5)]
            expected = (
                {int(shaped.argmax())}
                if config.temperature == 0
                else {int(sample(shaped, u.clamp(0, 1))) for u in near}
            )
            assert choice.token in expected
            plain = own[0].double().log_softmax(0)
            assert choice.log_prob == pytest.approx(float(plain[choice.token]), abs=1e-5)
            assert choice.is_best == (choice.token == int(own.argmax()))
            best = plain.topk(3)
            assert [token for token, _ in choice.top] == best.indices.tolist()
            assert [log_prob for _, log_prob in choice.top] == pytest.approx(best.values.tolist(), abs=1e-5)
            texts[number].append(choice.token)
            counts[number, choice.token] += 1


def test_scores_of_given_tokens_are_log_softmax(program):
    logits = torch.randn(4, VOCABULARY)
    logits[1, :] = 0.25  # all equal: any of them is the most probable, and the first come first
    logits[2, 5] = -torch.inf
    logits[3, 0] = torch.nan
    runner, rows = rows_with(program, logits, threads=2)
    found = runner.score(rows, [3, 4, 5, 6], top=2)
    plain = logits.double().log_softmax(1)
    assert [one.token for one in found] == [3, 4, 5, -1]
    assert found[0].log_prob == pytest.approx(float(plain[0, 3]), abs=1e-5)
    assert found[1].is_best
    assert [token for token, _ in found[1].top] == [0, 1]
    assert found[2].log_prob == -torch.inf
    assert not found[2].is_best
    assert found[3].log_prob != found[3].log_prob


def test_a_row_that_waits_keeps_its_state_and_its_logits(program):
    runner, rows = rows_with(program, torch.randn(3, VOCABULARY))
    logits, state = runner.logits(rows[1]).clone(), runner.state(rows[1])
    runner.step([rows[2], rows[0]], [5, 6], [False, True])
    assert torch.equal(runner.logits(rows[1]), logits)
    assert all(torch.equal(a, b) for a, b in zip(runner.state(rows[1]), state, strict=True))
    assert [int(runner.state(row)[1]) for row in rows] == [6, 0, 5]


def test_a_state_is_a_value(program):
    runner, (row,) = rows_with(program, torch.randn(1, VOCABULARY))
    before = runner.state(row)
    runner.step([row], [5])
    assert int(before[1]) == 0
    runner.set_state(row, before)
    assert int(runner.state(row)[1]) == 0


def test_memory_of_removed_rows_is_used_again(program):
    runner = RowRunner(program)
    state = Echo().initial_state(1)
    for _ in range(100):
        rows = [runner.add(state) for _ in range(5)]
        runner.step(rows, [1] * 5)
        assert all(int(runner.state(row)[1]) == 1 for row in rows)
        for row in rows:
            runner.remove(row)
    assert (len(runner), len(runner._memory)) == (0, 5)


def test_misuse_says_what_is_wrong(program):
    runner, (row, other) = rows_with(program, torch.randn(2, VOCABULARY))
    runner.remove(other)
    with pytest.raises(ValueError, match=f"there is no row {other}"):
        runner.step([row, other], [1, 1])
    with pytest.raises(ValueError, match="a row is given twice"):
        runner.step([row, row], [1, 1])
    with pytest.raises(ValueError, match="1 rows, 2 tokens"):
        runner.step([row], [1, 2])
    with pytest.raises(ValueError, match="token 50 is not among the 50 tokens"):
        runner.score([row], [50])
    with pytest.raises(ValueError, match="2 tokens to read, 1 to be scored"):
        runner.begin(Turn(row, [1, 2], given=[3]))
    with pytest.raises(ValueError, match="token 50 is not among the 50 tokens"):
        runner.begin(Turn(row, [1], given=[50]))
    with pytest.raises(ValueError, match="logit_bias: token 50 is not among"):
        Rules(VOCABULARY, {50: 1.0})
    with pytest.raises(ValueError, match="rules for 3 tokens; the model has 50"):
        runner.set_rules(row, Rules(3))
    with pytest.raises(ValueError, match="0 threads"):
        RowRunner(program, 0)


def test_a_fork_steps_without_the_threads_of_its_parent(program):
    """Catches: a child that waited forever for threads that a fork does not copy."""
    runner, rows = rows_with(program, torch.randn(4, VOCABULARY), threads=2)
    runner.step(rows, [1, 2, 3, 4])
    child = os.fork()
    if not child:
        signal.alarm(60)
        runner.step(rows, [1, 2, 3, 4])
        right = [int(runner.state(row)[1]) for row in rows] == [2, 4, 6, 8]
        del runner
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_text_of_the_loop_equals_one_of_rows(program):
    logits = torch.randn(1, VOCABULARY)
    rules = Rules(VOCABULARY, temperature=0.8, presence=0.5, frequency=0.25, penalty=1.2, window=4)
    uniforms = torch.rand(12, dtype=torch.float64)
    alone = Runner(program, [logits, torch.tensor([0])])
    alone.output.copy_(logits)
    expected, log_probs = alone.run(rules, History(rules), uniforms, final=True)
    runner, (row,) = rows_with(program, logits)
    runner.set_rules(row, rules)
    found = []
    for uniform in uniforms.tolist():
        found += runner.sample([row], [uniform])
        runner.step([row], [found[-1].token])
    assert [choice.token for choice in found] == expected
    assert [choice.log_prob for choice in found] == log_probs


def all_at_once(runner, turns):
    """What turns give, with a look at them in between."""
    for turn in turns:
        runner.begin(turn)
    over, found = runner.advance(steps=3, beside=2), {turn.row: runner.progress(turn.row) for turn in turns}
    over += runner.advance(beside=4)
    assert sorted(over) == sorted(turn.row for turn in turns)
    assert runner.advance() == []
    return [
        tuple(first + rest for first, rest in zip(found[turn.row], runner.progress(turn.row), strict=True))
        for turn in turns
    ]


def step_by_step(runner, turns, ends):
    """What `advance` gives, by single steps and draws."""
    found = []
    for turn in turns:
        drawn = []
        for place, token in enumerate(turn.inputs):
            runner.step([turn.row], [token])
            if turn.given:
                drawn += runner.score([turn.row], [turn.given[place]], turn.top)
        for uniform in turn.uniforms:
            if drawn:
                runner.step([turn.row], [drawn[-1].token])
            drawn += runner.sample([turn.row], [uniform], turn.top)
            if drawn[-1].token in ends:
                break
        tops = [choice.top for choice in drawn] if turn.top else []
        found.append((len(turn.inputs), [one.token for one in drawn], [one.log_prob for one in drawn], tops))
    return found


@pytest.mark.parametrize("threads", [1, 2])
def test_turns_give_what_single_steps_give(threads):
    """Prompts, draws with and without lists of the likeliest tokens, texts that end: row by row, in any company."""
    torch.manual_seed(0)
    model = LanguageModel(StackConfig.make({"hidden_size": 144, "pattern": ["lstm"]}), VOCABULARY).eval()
    with torch.no_grad(), torch.inference_mode(False):
        program = compile_step(model)
    rules = Rules(VOCABULARY, {7: 2.0}, temperature=0.8, presence=0.5, penalty=1.2, window=4, end=7, start=3, stops=1)
    random = torch.Generator().manual_seed(1)

    def turns_of(rows):
        random.manual_seed(2)
        sizes = [(1, 20, 2), (9, 3, 0), (70, 0, 0), (2, 1, 60), (5, 12, 1), (9, 0, 3)]
        tokens = [torch.randint(VOCABULARY, (known,), generator=random).tolist() for known, _, _ in sizes]
        uniforms = [torch.rand(count, generator=random, dtype=torch.float64).tolist() for _, count, _ in sizes]
        given = [()] * 5 + [tokens[1]]
        return [Turn(*turn) for turn in zip(rows, tokens, uniforms, given, (top for *_, top in sizes), strict=True)]

    results = []
    for take in (all_at_once, lambda *given: step_by_step(*given, {7})):
        runner = RowRunner(program, threads)
        rows = [runner.add(model.initial_state(1)) for _ in range(6)]
        for row in rows:
            runner.set_rules(row, rules)
        found = [*map(tuple, take(runner, turns_of(rows)))]
        results.append((found, [torch.cat([part.view(-1) for part in leaves(runner.state(row))]) for row in rows]))
    (found, states), (expected, stepped) = results
    assert found == expected
    assert any(tokens[-1:] == [7] and len(tokens) < 20 for _, tokens, _, _ in found)
    assert all(map(torch.equal, states, stepped))


def test_turns_stop_where_time_is_up_but_every_row_takes_a_step(program):
    runner, rows = rows_with(program, torch.randn(3, VOCABULARY))
    for turn in (Turn(rows[0], [1] * 90), Turn(rows[1], [1], [0.5] * 9), Turn(rows[2], [1, 1])):
        runner.set_rules(turn.row, Rules(VOCABULARY))
        runner.begin(turn)
    assert runner.advance(0, beside=4) == []
    found = [runner.progress(row) for row in rows]
    assert [(one.read, len(one.tokens)) for one in found] == [(1, 0), (1, 1), (1, 0)]
    assert [int(runner.state(row)[1]) for row in rows] == [1, 1, 1]
    runner.remove(rows[1])
    assert runner.advance(steps=3, beside=4) == [rows[2]]
    assert [runner.progress(row).read for row in (rows[0], rows[2])] == [15, 1]


def test_turns_of_logits_that_are_not_finite_end(program):
    runner, rows = rows_with(program, torch.tensor([[torch.nan] * VOCABULARY, [0.0] * VOCABULARY]))
    for row in rows:
        runner.begin(Turn(row, [1], [0.5] * 4))
    assert sorted(runner.advance()) == sorted(rows)
    assert [len(runner.progress(row).tokens) for row in rows] == [1, 4]


def test_excluding_a_token_draws_what_no_weight_for_it_draws(program):
    """The quick way where nothing else changes the weights, and where the token is the most probable one."""
    logits = torch.randn(2, VOCABULARY)
    logits[0, 9], logits[1, 9] = -1.0, 9.0
    runner, rows = rows_with(program, logits)
    for row in rows:
        runner.set_rules(row, Rules(VOCABULARY, excluded=9))
    without = logits.double().softmax(1).index_fill(1, torch.tensor([9]), 0).cumsum(1)
    for uniform in torch.arange(0.005, 1, 0.01).tolist():
        expected = [int((row < uniform * row[-1]).sum()) for row in without]
        assert [choice.token for choice in runner.sample(rows, [uniform] * 2)] == expected
