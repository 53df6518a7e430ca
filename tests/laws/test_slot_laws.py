"""Rows in slots: the tokens of the reference, in any company, in any slot, in one step or in plans of several.

Without a GPU the steps of the CUDA graphs run one by one. In blocks of one row the arithmetic is that of the reference,
so log-probabilities are equal to the last bit; but for attention, whose ring adds up in another order.

Seen to fail: with rows that were stepped without being asked to, states that went on after the end of a text, a graph
made from live inputs, rows that moved without their logits, the logit bias of the row that was in the slot before, and
a ring whose order depended on when it was made.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_native_laws import CASES as LAYER_CASES
from test_native_laws import model_of as layer_model

from elman.errors import ConfigError, ElmanError
from elman.generation import GenerationConfig
from elman.models import LanguageModel, StackConfig
from elman.ops.state import leaves
from elman.serving import row_engines, slot_rows
from elman.serving.row_engines import rows_for
from elman.serving.rows import Draw, Feed, Plan, Rows, Rule, TorchRows
from elman.serving.settings import ServeConfig
from elman.serving.slot_rows import SlotRows

VOCABULARY, EOS, START = 28, 0, 5
PATTERNS: dict[str, dict[str, Any]] = {
    "lstm": {"pattern": ["lstm", "lstm"]},
    "attention": {
        "pattern": [{"attention": {"num_heads": 3, "kv_heads": 1, "positions": "alibi", "context": 7}}, "swiglu"],
        **{"residual": True, "norm": "pre", "positions": "learned", "max_positions": 9},
    },
    "rotary": {"pattern": [{"attention": {"num_heads": 2, "positions": "rotary", "context": 64}}, "gru"]},
    "mamba": {"pattern": ["mamba"]},
    "hybrid": {"pattern": ["gru", "convolution"]},
}
EXACT = {"lstm", "mamba", "hybrid"}
RULES: list[dict[str, Any]] = [
    {},
    {"temperature": 0},
    {"top_k": 5, "top_p": 0.8, "temperature": 1.3},
    {"top_p": 0.6},
    {"temperature": 0, "repetition_penalty": 1.5, "repetition_window": 4},
    {"min_p": 0.1},
    {"presence_penalty": 0.5, "frequency_penalty": 0.25, "logit_bias": {3: 1.0, 7: -100.0}},
    {"top_k": 3, "repetition_penalty": 1.3, "repetition_window": 100},
]


def model_of(name: str = "lstm", vocabulary: int = VOCABULARY) -> LanguageModel:
    torch.manual_seed(0)
    model = LanguageModel(StackConfig.make({"hidden_size": 12, **PATTERNS[name]}), vocabulary).eval()
    torch.nn.init.normal_(model.embedding.weight)
    return model


def initial(model: LanguageModel) -> Any:
    with torch.inference_mode():
        return model.initial_state(1)


def assert_alike(found: list[Any], expected: list[Any], tolerance: float = 0.0) -> None:
    """The same tokens, drawn and listed, and their log-probabilities."""
    assert [choice.token for choice in found] == [choice.token for choice in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.log_prob == pytest.approx(theirs.log_prob, abs=tolerance, rel=0)
        assert [token for token, _ in ours.top] == [token for token, _ in theirs.top]
        values = [value for _, value in theirs.top]
        assert [value for _, value in ours.top] == pytest.approx(values, abs=tolerance, rel=0)


def follow(rows: Rows, number: int, row: int, rng: random.Random, steps: int, vocabulary: int) -> list[Any]:
    """A text of the row: some known tokens, some of them scored, then drawn ones."""
    found, token = [], number % vocabulary
    for step in range(steps):
        rows.step([Feed(row, START if token == EOS else token)])
        scored = rng.random() < 0.2
        uniform, target = rng.random(), rng.randrange(vocabulary)
        (choice,) = rows.choose([Draw(row, uniform, step % 4, target if scored else None)])
        found.append(choice)
        token = choice.token
    return found


def rule(number: int) -> Rule:
    config = GenerationConfig.make(RULES[number % len(RULES)])
    return Rule(config, 1 if number % 3 else None, [2, 9, 4][: number % 4])


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
def test_a_row_in_a_block_of_its_own_is_that_of_the_reference(name: str) -> None:
    """Every rule, to the last bit; states go on in another slot."""
    model = model_of(name)
    slots, reference = SlotRows(model, 3, block=1), TorchRows(model)
    held = [slots.add(initial(model), Rule()), slots.add(initial(model), Rule())]
    for number in range(len(RULES)):
        pairs = []
        for rows in (reference, slots):
            row, rng = rows.add(initial(model), rule(number)), random.Random(number)
            pairs.append((follow(rows, number, row, rng, 6, VOCABULARY), rows.state(row)))
            rows.remove(row)
        tolerance = 0.0 if name in EXACT else 1e-5
        assert_alike(pairs[1][0], pairs[0][0], tolerance)
        for own, other in zip(leaves(pairs[0][1]), leaves(pairs[1][1]), strict=True):
            torch.testing.assert_close(own, other, rtol=0, atol=tolerance)
        slots.remove(held.pop(0))
        held.append(slots.add(initial(model), Rule()))


@pytest.mark.parametrize(
    "make", [TorchRows, lambda model: SlotRows(model, 2, block=2), lambda model: rows_for(model, ServeConfig())]
)
def test_of_equal_logits_the_lowest_ids_are_listed(make: Callable[[LanguageModel], Rows]) -> None:
    model = model_of(vocabulary=300)
    torch.nn.init.zeros_(model.output_weight)
    rows = make(model)
    row = rows.add(initial(model), Rule())
    rows.step([Feed(row, START)])
    (choice,) = rows.choose([Draw(row, 0.5, 20)])
    assert [token for token, _ in choice.top] == [*range(20)]


def assert_company_changes_nothing(
    model: LanguageModel, make: Callable[[], Rows], tolerance: float = 0.0, texts: int = 12
) -> None:
    """Rows with rules of their own arrive and leave at random, are moved and carried to other rows; each has the
    tokens, log-probabilities and state that it has alone."""
    vocabulary = model.vocab_size
    rng, crowd, state = random.Random(0), make(), initial(model)
    plan = {number: (rng.randint(1, 13), random.Random(number)) for number in range(texts)}
    waiting, running, found = list(plan), {}, {number: [] for number in plan}
    fed = {number: number % vocabulary for number in plan}
    final = {}
    while waiting or running:
        while waiting and len(running) < 9 and rng.random() < 0.6:
            number = waiting.pop(0)
            running[number] = crowd.add(state, rule(number))
        stepped = rng.sample(sorted(running), rng.randint(0, len(running)))
        if not stepped:
            continue
        crowd.step([Feed(running[number], START if fed[number] == EOS else fed[number]) for number in stepped])
        draws = []
        for number in stepped:
            own = plan[number][1]
            scored, uniform, target = own.random() < 0.2, own.random(), own.randrange(vocabulary)
            draws.append(Draw(running[number], uniform, len(found[number]) % 4, target if scored else None))
        for number, choice in zip(stepped, crowd.choose(draws), strict=True):
            found[number].append(choice)
            fed[number] = choice.token
            if len(found[number]) == plan[number][0]:
                final[number] = crowd.state(running[number])
                crowd.remove(running.pop(number))
    alone = make()
    for number, (length, _) in plan.items():
        row = alone.add(state, rule(number))
        assert_alike(found[number], follow(alone, number, row, random.Random(number), length, vocabulary), tolerance)
        for own, other in zip(leaves(alone.state(row)), leaves(final[number]), strict=True):
            torch.testing.assert_close(own, other, rtol=0, atol=tolerance)
        alone.remove(row)


BLOCKS = {1: 0.0, 4: 1e-5}  # on a CPU, vector instructions compute the rows of a block in different ways


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("name", PATTERNS)
def test_a_row_does_not_depend_on_its_company(name: str, block: int) -> None:
    model = model_of(name)
    assert_company_changes_nothing(model, lambda: SlotRows(model, 9, block=block), BLOCKS[block])


def plans_of(rows: Rows, model: LanguageModel, cuts: list[int], seed: int) -> list[list[Any]]:
    """What rows with rules of their own give, by plans that cut their texts after these numbers of steps."""
    rng = random.Random(seed)
    count = len(RULES)
    numbers = {number: rows.add(initial(model), rule(number)) for number in range(count)}
    streams = {number: [rng.random() for _ in range(40)] for number in range(count)}
    known = {number: [rng.randrange(1, VOCABULARY) for _ in range(1 + 3 * number)] for number in range(count)}
    found: dict[int, list[Any]] = {number: [] for number in range(count)}
    for number, tokens in known.items():  # all but the last are scored
        for begin in range(0, len(tokens) - 1, cuts[0]):
            end = min(begin + cuts[0], len(tokens) - 1)
            plan = Plan(numbers[number], tokens[begin:end], tokens[begin + 1 : end + 1])
            found[number] += rows.extend([plan], EOS, START)[0]
    last = {number: tokens[-1] for number, tokens in known.items()}
    for cut in cuts:
        plans = []
        for number in list(last):
            drawn = [streams[number].pop(0) for _ in range(cut)]
            ends = number % 2 == 0
            plans.append(Plan(numbers[number], [START if last[number] == EOS else last[number]], (), drawn, 2, ends))
        for number, choices in zip(list(last), rows.extend(plans, EOS, START), strict=True):
            found[number] += choices
            last[number] = choices[-1].token
            if number % 2 == 0 and last[number] == EOS:
                del last[number]
    return list(found.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mamba", "attention"])
def test_plans_of_several_steps_give_what_single_steps_give(name: str) -> None:
    model = model_of(name)
    expected = plans_of(TorchRows(model), model, [1] * 16, seed=11)
    assert any(choice.token == EOS for choices in expected for choice in choices), "no text ends"
    for cuts in ([5, 5, 5, 1], [16]):
        found = plans_of(SlotRows(model, 8, block=1), model, cuts, seed=11)
        for ours, theirs in zip(found, expected, strict=True):
            assert_alike(ours, theirs, 0.0 if name in EXACT else 1e-5)


def test_a_row_keeps_its_state_after_the_end_of_its_text_within_a_plan() -> None:
    model = model_of()
    rows, alone = SlotRows(model, 4, block=4), SlotRows(model, 4, block=4)
    first, other = rows.add(initial(model), Rule()), rows.add(initial(model), Rule())
    always_eos = [0.0] * 16  # the first token of the vocabulary
    choices, others = rows.extend([Plan(first, [3], (), always_eos), Plan(other, [4], (), [0.7] * 16)], EOS, START)
    assert [choice.token for choice in choices] == [EOS]
    assert len(others) > 1
    row = alone.add(initial(model), Rule())
    alone.step([Feed(row, 3)])
    for own, one in zip(leaves(alone.state(row)), leaves(rows.state(first)), strict=True):
        assert torch.equal(own, one)


def test_columns_that_fill_up_the_logits_are_never_drawn_or_listed() -> None:
    model = model_of(vocabulary=27)
    slots, reference = SlotRows(model, 2, block=1), TorchRows(model)
    found = []
    for rows in (slots, reference):
        row = rows.add(initial(model), Rule(GenerationConfig(top_k=27, top_p=0.9999)))
        rows.step([Feed(row, 3)])
        found.append([rows.choose([Draw(row, uniform, 40)])[0] for uniform in (0.0, 0.3, 0.9999999, 1 - 2**-53)])
    for ours, theirs in zip(*found, strict=True):
        assert ours.token == theirs.token
        assert [token for token, _ in ours.top] == [token for token, _ in theirs.top]
        assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-6)


def test_rows_move_to_lower_blocks_when_others_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("attention")
    rows = SlotRows(model, 16, block=2)
    numbers = [rows.add(initial(model), rule(number)) for number in range(16)]
    rows.step([Feed(row, 2 + row) for row in numbers])
    before = [part.clone() for part in leaves(rows.state(numbers[15]))]
    (expected,) = rows.choose([Draw(numbers[15], 0.5)])
    for row in numbers[:15]:
        rows.remove(row)
    assert rows.choose([Draw(numbers[15], token=expected.token)])[0].log_prob == expected.log_prob
    assert rows._slots == {numbers[15]: 0}
    assert all(torch.equal(a, b) for a, b in zip(before, leaves(rows.state(numbers[15])), strict=True))
    assert {blocks for _, blocks in rows._graphs} == {8, 1}


def test_broken_logits_fail_their_row_only() -> None:
    model = model_of()
    rows = SlotRows(model, 4, block=4)
    first, other = rows.add(initial(model), Rule()), rows.add(initial(model), Rule())
    with torch.no_grad():
        model.embedding.weight[3] = torch.nan
    broken, good = rows.extend([Plan(first, [3], (), [0.5] * 4), Plan(other, [4], (), [0.5] * 4)], EOS, START)
    assert isinstance(broken[0], ElmanError)  # tied embeddings: token 3 has no logit in any row
    assert len(broken) == 1
    assert "28 NaN" in str(broken[0])
    assert good


def test_what_does_not_fit_is_refused() -> None:
    model = model_of()
    rows = SlotRows(model, 1, block=4)
    with pytest.raises(ConfigError, match="token 28 is not among the 28"):
        rows.add(initial(model), Rule(GenerationConfig(logit_bias={28: 1.0})))
    rows.add(initial(model), Rule())
    with pytest.raises(ElmanError, match="all 1 slots are taken"):
        rows.add(initial(model), Rule())


def test_slots_are_chosen_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_engines, "device_of", lambda model: torch.device("cuda"))
    assert isinstance(rows_for(model_of(), ServeConfig()), SlotRows)
    monkeypatch.setattr(row_engines, "obstacle", lambda model: "a step needs the host")
    rows = rows_for(model_of(), ServeConfig())
    assert isinstance(rows, TorchRows)
    assert rows.name == "torch, one row after another: a step needs the host"


class Replayed:
    """A stand-in for a CUDA graph: warm-up runs its step, as on a GPU."""

    def __init__(self, step: Callable[[], None], device: torch.device, pool: Any):
        self.replay = step
        for _ in range(3):
            step()


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
def test_making_a_graph_changes_no_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(name)
    monkeypatch.setattr(slot_rows, "capture", Replayed)
    assert_company_changes_nothing(model, lambda: SlotRows(model, 9, block=4, steps=2), BLOCKS[4])


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@needs_gpu
@pytest.mark.parametrize("name", PATTERNS)
def test_a_row_on_a_gpu_does_not_depend_on_its_company(name: str) -> None:
    """Nor on its block: rows move from one to another."""
    model = model_of(name).cuda()
    assert_company_changes_nothing(model, lambda: SlotRows(model, 9, block=4))


@needs_gpu
@pytest.mark.parametrize(("name", "settings"), LAYER_CASES)
def test_a_row_of_any_layer_on_a_gpu_does_not_depend_on_its_company(name: str, settings: dict[str, Any]) -> None:
    model = layer_model(name, settings, tied_embeddings=False).cuda()
    assert_company_changes_nothing(model, lambda: SlotRows(model, 64), texts=8)


@needs_gpu
@pytest.mark.parametrize("name", PATTERNS)
def test_plans_on_a_gpu_give_what_single_steps_give(name: str) -> None:
    model = model_of(name).cuda()
    expected = plans_of(SlotRows(model, 8), model, [1] * 16, seed=11)
    for cuts in ([5, 5, 5, 1], [16]):
        assert plans_of(SlotRows(model, 8), model, cuts, seed=11) == expected
    tokens = [[choice.token for choice in choices] for choices in plans_of(TorchRows(model), model, [1] * 16, seed=11)]
    assert tokens == [[choice.token for choice in choices] for choices in expected]
