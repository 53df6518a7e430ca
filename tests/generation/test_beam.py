"""Beam search against greedy search and against all sequences there are."""

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elman.batches import Ragged
from elman.errors import ConfigError, ElmanError
from elman.generation import BeamConfig, beam, beam_search, forced_log_probs
from elman.generation.cuda_graph import keep
from elman.models import EncoderDecoder, EncoderDecoderConfig, LanguageModel
from elman.ops.host_sync import find_host_sync
from elman.ops.state import fixed
from elman.ops.taps import record

EOS = 0


class Tree:
    """Any distribution after any past: the state is a number that tells the row and all of its tokens."""

    def __init__(self, vocab: int, seed: int, size: int = 997):
        chance = torch.Generator().manual_seed(seed)
        self.vocab, self.size = vocab, size
        self.table = 2 * torch.randn(size, vocab, generator=chance)
        self.steps = 0
        self.rows: list[int] = []

    def start(self, rows: int) -> Tensor:
        return 31 * torch.arange(rows) + 1

    def step(self, token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        self.rows.append(len(token))
        state = (state * 7 + token + 1) % self.size
        return self.table[state], state

    def log_prob(self, row: int, tokens: tuple[int, ...]) -> float:
        state, total, last = self.start(row + 1)[row:], 0.0, EOS
        for token in tokens:
            logits, state = self.step(torch.tensor([last]), state)
            total += float(logits.log_softmax(-1)[0, token])
            last = token
        return total


def everything(vocab: int, limit: int) -> list[tuple[int, ...]]:
    """All that end within the limit, and all that are cut there."""
    words = range(1, vocab)
    ended = [(*body, EOS) for size in range(limit) for body in product(words, repeat=size)]
    return ended + list(product(words, repeat=limit))


def ranked(tree: Tree, row: int, limit: int, penalty: float) -> list[tuple[float, tuple[int, ...]]]:
    found = [(tree.log_prob(row, s) / ((5 + len(s)) / 6) ** penalty, s) for s in everything(tree.vocab, limit)]
    return sorted(found, reverse=True)


@given(
    vocab=st.integers(2, 4),
    limit=st.integers(1, 3),
    seed=st.integers(0, 500),
    penalty=st.sampled_from([0.0, 0.6, 1.5]),
    rows=st.integers(1, 3),
)
def test_beams_for_all_sequences_find_the_best_of_all(
    vocab: int, limit: int, seed: int, penalty: float, rows: int
) -> None:
    """The whole list, in order. Catches: scores of beams not added; beams of the next row taken; the end's token left
    out of the length; only the first finished one kept; the state not reordered."""
    tree, beams = Tree(vocab, seed), len(everything(vocab, limit))
    config = BeamConfig(beam_size=beams, max_tokens=limit, length_penalty=penalty)
    found = beam_search(tree, tree.start(rows), EOS, config)
    for row in range(rows):
        truth = ranked(tree, row, limit, penalty)
        torch.testing.assert_close(found.scores[row].tolist(), [score for score, _ in truth], rtol=1e-4, atol=1e-4)
        for tokens, length, log_prob in zip(found.tokens[row], found.lengths[row], found.log_probs[row], strict=True):
            sequence = tuple(tokens[:length].tolist())
            assert tree.log_prob(row, sequence) == pytest.approx(float(log_prob), abs=1e-4)
        assert len(torch.unique(torch.cat([found.tokens[row], found.lengths[row, :, None]], 1), dim=0)) == beams


@given(vocab=st.integers(2, 8), limit=st.integers(1, 12), seed=st.integers(0, 500), rows=st.integers(1, 5))
def test_one_beam_is_greedy_search(vocab: int, limit: int, seed: int, rows: int) -> None:
    """Catches: an end that was only second best was taken for finished."""
    tree = Tree(vocab, seed)
    found = beam_search(tree, tree.start(rows), EOS, BeamConfig(beam_size=1, max_tokens=limit, length_penalty=1.0))
    for row in range(rows):
        state, last, greedy = tree.start(rows)[[row]], EOS, []
        while len(greedy) < limit and (not greedy or last != EOS):
            logits, state = tree.step(torch.tensor([last]), state)
            last = int(logits.argmax())
            greedy.append(last)
        assert found.tokens[row, 0, : found.lengths[row, 0]].tolist() == greedy


@given(seed=st.integers(0, 300), beams=st.integers(1, 6), penalty=st.sampled_from([0.0, 1.0]))
def test_rows_find_alone_what_they_find_together(seed: int, beams: int, penalty: float) -> None:
    """Catches: rows that were over stayed and shifted the others."""
    tree, config = Tree(5, seed), BeamConfig(beam_size=beams, max_tokens=9, length_penalty=penalty)
    together = beam_search(tree, tree.start(4), EOS, config).lists(EOS)
    for row in range(4):
        assert beam_search(tree, tree.start(4)[[row]], EOS, config).lists(EOS)[0] == together[row]


@given(
    seed=st.integers(0, 500),
    beams=st.integers(1, 6),
    wanted=st.integers(1, 6),
    penalty=st.sampled_from([0.0, 0.8]),
)
def test_stopping_when_the_best_are_certain_finds_the_same_best(
    seed: int, beams: int, wanted: int, penalty: float
) -> None:
    """Or a better one where length is rewarded: who waits for a list may see it. Catches: the hope taken from the worst
    of those that go on."""
    beams = max(beams, wanted)
    tree, config = Tree(5, seed), BeamConfig(beam_size=beams, max_tokens=9, length_penalty=penalty)
    whole = beam_search(tree, tree.start(3), EOS, config).lists(EOS)
    steps = len(tree.rows)
    some = beam_search(tree, tree.start(3), EOS, config.model_copy(update={"num_best": wanted})).lists(EOS)
    if penalty:
        assert all(one[0].score <= row[0].score + 1e-6 for one, row in zip(some, whole, strict=True))
    else:
        assert some == [row[:wanted] for row in whole]
    assert len(tree.rows) - steps <= steps


class Late:
    """Ends at once with a chance of 0.6; else goes on for sure, and ends for sure with the sixth word."""

    def step(self, token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        first, middle, end = torch.tensor([[0.6, 0.4], [1e-6, 1.0], [1.0, 1e-6]]).log()
        return torch.stack([first if s == 0 else end if s == 5 else middle for s in state.tolist()]), state + 1


def test_a_search_does_not_stop_while_length_can_make_up_for_the_loss() -> None:
    """Catches: the hope of those that go on taken for their present length."""
    config = BeamConfig(beam_size=9, num_best=1, max_tokens=6, length_penalty=2)
    ((best,),) = beam_search(Late(), torch.zeros(1, dtype=torch.long), EOS, config).lists(EOS)
    assert best.tokens == [1] * 5


class Steady:
    """Goes on with a chance of 0.97 and ends with one of 0.02, until it ends for sure with the ninth word."""

    def step(self, token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        middle, end = torch.tensor([[0.02, 0.97, 0.01], [1.0, 1e-6, 1e-6]]).log()
        return torch.stack([end if s == 8 else middle for s in state.tolist()]), state + 1


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("beams", [1, 2, 3, 5])
def test_poor_ends_do_not_stop_a_search_whose_best_goes_on(beams: int, penalty: float) -> None:
    """Even as many of them as beams: long words lost half their sounds."""
    config = BeamConfig(beam_size=beams, max_tokens=20, length_penalty=penalty)
    ((best, *_),) = beam_search(Steady(), torch.zeros(1, dtype=torch.long), EOS, config).lists(EOS)
    assert best.tokens == [1] * 8


def test_a_search_for_the_best_alone_is_shorter() -> None:
    steps = {}
    for wanted in (0, 1):
        tree = Tree(6, 4)
        beam_search(tree, tree.start(20), EOS, BeamConfig(beam_size=6, num_best=wanted, max_tokens=40))
        steps[wanted] = sum(tree.rows)
    assert steps[1] < 0.8 * steps[0]


@given(
    seed=st.integers(0, 300),
    beams=st.integers(1, 4),
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    ratio=st.sampled_from([0.5, 1.0, 1.5]),
    extra=st.integers(0, 2),
)
def test_each_row_has_the_limit_of_its_own_source(
    seed: int, beams: int, lengths: list[int], ratio: float, extra: int
) -> None:
    """As if it were alone and max_tokens were that. Catches: rows at their limit not counted as over; the limit of
    another row after one has left."""
    tree = Tree(5, seed)
    config = BeamConfig(beam_size=beams, max_tokens=7, length_ratio=ratio, length_extra=extra)
    found = beam_search(tree, tree.start(len(lengths)), EOS, config, source_lengths=torch.tensor(lengths)).lists(EOS)
    for row, length in enumerate(lengths):
        limit = min(7, max(1, int(ratio * length + extra)))
        alone = BeamConfig(beam_size=beams, max_tokens=limit)
        assert beam_search(tree, tree.start(len(lengths))[[row]], EOS, alone).lists(EOS)[0] == found[row]


def test_a_limit_by_the_source_needs_a_source() -> None:
    with pytest.raises(ConfigError, match="no source"):
        beam_search(Tree(3, 0), Tree(3, 0).start(1), EOS, BeamConfig(length_ratio=1))


def test_more_cannot_be_wanted_than_is_followed() -> None:
    with pytest.raises(ConfigError, match="num_best 6 needs as many beams"):
        BeamConfig.make({"num_best": 6, "beam_size": 5})


class Slow(Tree):
    """A state in three parts: one that no step changes, one that every second step changes, and the count."""

    def start(self, rows: int) -> Any:
        return torch.arange(rows) + 1, torch.zeros(rows, dtype=torch.long), torch.zeros(rows, dtype=torch.long)

    def step(self, token: Tensor, state: Any) -> tuple[Tensor, Any]:
        row, past, count = state
        self.rows.append(len(token))
        if len(count) and int(count[0]) % 2 == 0:
            past = (past * 7 + token + 1) % self.size
        return self.table[(31 * row + 5 * past + token) % self.size], (row, past, count + 1)


@given(seed=st.integers(0, 300), beams=st.integers(2, 5))
def test_a_part_of_the_state_that_rests_at_times_still_belongs_to_its_beam(seed: int, beams: int) -> None:
    """Catches: all that the last step did not change taken for shared; shared parts not taken when rows leave."""
    tree = Slow(5, seed)
    found = beam_search(tree, tree.start(3), EOS, BeamConfig(beam_size=beams, max_tokens=6))
    for row in range(3):
        for tokens, length, log_prob in zip(found.tokens[row], found.lengths[row], found.log_probs[row], strict=True):
            state = tuple(part[[row]] for part in tree.start(3))
            total, last = 0.0, EOS
            for token in tokens[:length].tolist():
                logits, state = tree.step(torch.tensor([last]), state)
                total, last = total + float(logits.log_softmax(-1)[0, token]), token
            assert total == pytest.approx(float(log_prob), abs=1e-4)


def test_more_beams_never_find_worse_than_greedy_here() -> None:
    """Not a law of beam search, but nearly always so: a search that loses its best hypotheses would show."""
    better = 0
    for seed in range(40):
        tree = Tree(6, seed)
        best = [
            beam_search(tree, tree.start(1), EOS, BeamConfig(beam_size=beams, max_tokens=8)).scores[0, 0]
            for beams in (1, 8)
        ]
        better += bool(best[1] >= best[0])
    assert better >= 39


def test_rows_leave_the_batch_when_they_are_over() -> None:
    tree = Tree(3, 0)
    tree.table[:] = torch.tensor([-9.0, 0.0, 0.0])  # nobody ends
    state = tree.start(3)
    tree.table[(state[1] * 7 + EOS + 1) % tree.size] = torch.tensor([9.0, -9.0, -9.0])  # but the second row at once
    found = beam_search(tree, state, EOS, BeamConfig(beam_size=1, max_tokens=4))
    assert tree.rows == [3, 2, 2, 2]
    assert found.lengths[:, 0].tolist() == [4, 1, 4]


def test_a_list_is_complete_ranked_and_without_ends() -> None:
    tree = Tree(6, 3)
    found = beam_search(tree, tree.start(2), EOS, BeamConfig(beam_size=4, max_tokens=20))
    for row in found.lists(EOS):
        assert len(row) == 4
        assert [h.score for h in row] == sorted((h.score for h in row), reverse=True)
        assert all(EOS not in h.tokens for h in row)


def test_no_rows_give_no_hypotheses() -> None:
    assert beam_search(Tree(3, 0), torch.zeros(0, dtype=torch.long), EOS).lists(EOS) == []


def test_fewer_sequences_than_beams_leave_empty_places() -> None:
    found = beam_search(Tree(2, 0), Tree(2, 0).start(1), EOS, BeamConfig(beam_size=9, max_tokens=2))
    assert [len(row) for row in found.lists(EOS)] == [3]  # end; word, end; word, word


def test_broken_logits_are_refused() -> None:
    tree = Tree(3, 0)
    tree.table[:] = torch.nan
    with pytest.raises(ElmanError, match="outputs are NaN"):
        beam_search(tree, tree.start(1), EOS)


SOURCE = Ragged(torch.tensor([[1, 2, 3, 4], [5, 0, 0, 0]]), torch.tensor([4, 2]))


def model(seed: int = 1, **decoder: Any) -> EncoderDecoder:
    torch.manual_seed(seed)
    settings = {"encoder": {"hidden_size": 8}, "decoder": {"hidden_size": 8, **decoder}}
    found = EncoderDecoder(EncoderDecoderConfig.make(settings), 7, 7, EOS)
    for parameter in found.parameters():
        parameter.data *= 3
    return found


DECODERS = pytest.mark.parametrize(
    "decoder",
    [
        {},
        {"input_feeding": True, "context": ["state", "input", "output"]},
        {
            "pattern": [{"attention": {"context": 12}}, "cross-attention", "feedforward"],
            "context": [],
            "attention": None,
        },
    ],
    ids=["recurrent", "feeding", "Transformer"],
)


@DECODERS
def test_what_a_search_says_of_a_sequence_is_what_forcing_it_says(decoder: dict[str, Any]) -> None:
    """And the model is as it was, in training mode."""
    given_model = model(**decoder, dropout=0.5)
    given_model.train()
    found = beam_search(given_model, given_model.eval().start(SOURCE), EOS, BeamConfig(beam_size=3, max_tokens=7))
    given_model.train()
    for rank in range(3):
        target = Ragged(found.tokens[:, rank], found.lengths[:, rank])
        torch.testing.assert_close(
            forced_log_probs(given_model, SOURCE, target), found.log_probs[:, rank], rtol=1e-4, atol=1e-4
        )
    assert given_model.training


@DECODERS
@pytest.mark.parametrize("ratio", [0.0, 2.0])
def test_one_beam_finds_the_same_by_captured_steps(
    decoder: dict[str, Any], ratio: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a row that went on behind its limit; a source whose padding was looked at."""
    config = BeamConfig(beam_size=1, max_tokens=20, length_penalty=0.6, length_ratio=ratio, length_extra=1)
    source = Ragged(torch.tensor([[1, 2, 3], [5, 0, 0], [6, 4, 0]]), torch.tensor([3, 1, 2]))
    for seed in range(4):
        given_model = model(seed, **decoder).eval()
        with monkeypatch.context() as patch:
            expected = beam_search(given_model, given_model.start(source), EOS, config, source_lengths=source.lengths)
            patch.setattr(beam, "_can_use_cuda_graph", lambda *given: True)
            found = beam_search(given_model, given_model.start(source), EOS, config, source_lengths=source.lengths)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@DECODERS
def test_no_decoder_needs_the_host_in_a_step(decoder: dict[str, Any]) -> None:
    given_model = model(**decoder).eval()
    with torch.inference_mode():
        state = fixed(given_model.start(SOURCE), 20)
    step = lambda token, state: keep(state, given_model.step(token, state)[1])  # noqa: E731
    assert find_host_sync(given_model, step, torch.tensor([1, 2]), state) == ""


def test_a_language_model_can_be_searched_too() -> None:
    torch.manual_seed(0)
    language = LanguageModel(LanguageModel.Config.make({"pattern": ["lstm"], "hidden_size": 8}), 6).eval()
    found = beam_search(language, language.initial_state(1), EOS, BeamConfig(beam_size=3, max_tokens=5))
    tokens = found.tokens[:, 0, : found.lengths[0, 0]]
    inputs = torch.cat([torch.tensor([[EOS]]), tokens[:, :-1]], 1)
    torch.testing.assert_close(-language.losses(inputs, tokens)[0].sum(), found.log_probs[0, 0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("heads", [1, 2])
def test_coverage_takes_what_was_not_looked_at_from_the_score(heads: int, seed: int) -> None:
    """By the definition, with weights from a pass over the finished sequences. Catches: padding counted as not looked
    at; the last step's attention left out; beams of attention not reordered."""
    given_model = model(seed, attention={"num_heads": heads}).eval()
    given_model.decoder.attention.from_input.weight.data *= 3  # sharp: each hypothesis looks elsewhere
    config = BeamConfig(beam_size=4, max_tokens=5, length_penalty=0.5, coverage_penalty=0.7)
    found = beam_search(given_model, given_model.start(SOURCE), EOS, config)
    for rank in range(4):
        target = Ragged(found.tokens[:, rank], found.lengths[:, rank])
        with torch.no_grad(), record("decoder.cross-attention.weights") as seen:
            given_model(SOURCE, target)
        weights = seen["decoder.cross-attention.weights"].mean(2) * target.mask().unsqueeze(2)
        logs = weights.sum(1).clamp(max=1).log().masked_fill(~SOURCE.mask(), 0).sum(1)
        lengths = ((5 + found.lengths[:, rank]) / 6) ** 0.5
        expected = found.log_probs[:, rank] / lengths + 0.7 * logs
        torch.testing.assert_close(found.scores[:, rank], expected, rtol=1e-4, atol=1e-4)


def test_coverage_needs_attention() -> None:
    blind = model(attention=None).eval()
    with pytest.raises(ConfigError, match="no cross-attention"):
        beam_search(blind, blind.start(SOURCE), EOS, BeamConfig(coverage_penalty=0.1))
