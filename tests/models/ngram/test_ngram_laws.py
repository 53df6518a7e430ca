"""The laws of sequence models for n-grams: as for any layer, without gradients."""

from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ngram_cases import EOS, VOCABULARY, fitted, regular, stored
from torch import Tensor

from elman.compiler.cpu.step import Runner, compile_step
from elman.generation import GenerationConfig, generate_tokens
from elman.models import MODELS
from elman.models.ngram import NGram
from elman.ops import taps

CASES: dict[str, dict[str, Any]] = {
    "independent": {"order": 1},
    "two words": {"order": 2, "smoothing": "witten-bell"},
    "five words": {"order": 5, "smoothing": "modified-kneser-ney"},
    "pruned": {"order": 3, "smoothing": "kneser-ney", "prune": [1, 2]},
    "may be impossible": {"order": 4, "smoothing": "maximum-likelihood"},
}
FITTED = {name: fitted(regular(), **settings) for name, settings in CASES.items()}
every_model = pytest.mark.parametrize("model", FITTED.values(), ids=list(FITTED))


class Situation(NamedTuple):
    tokens: Tensor
    lengths: Tensor
    past: Tensor
    cut: int

    @property
    def real(self) -> Tensor:
        return torch.arange(self.tokens.shape[1]) < self.lengths.unsqueeze(1)


@st.composite
def situations(draw: Any) -> Situation:
    batch, time = draw(st.integers(1, 4)), draw(st.integers(1, 9))
    random = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    tokens, past = (torch.randint(VOCABULARY, (batch, size), generator=random) for size in (time, 6))
    lengths = torch.tensor(draw(st.lists(st.integers(0, time), min_size=batch, max_size=batch)))
    return Situation(tokens, lengths, past, draw(st.integers(0, time)))


def after(model: NGram, past: Tensor) -> Tensor:
    return model(past)[1]


def walked(model: NGram, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    outputs = []
    for token in tokens.unbind(1):
        output, state = model.step(token, state)
        outputs.append(output)
    return torch.stack(outputs, 1), state


def same(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=0)
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=0)


@every_model
@given(situation=situations())
def test_step_equals_forward(model: NGram, situation: Situation) -> None:
    """Catches: a step saw its past in another order; a position saw the next token; the state was a token late."""
    state = after(model, situation.past)
    same(model(situation.tokens, state), walked(model, situation.tokens, state))
    same(model(situation.tokens), walked(model, situation.tokens, model.initial_state(len(situation.tokens))))


@every_model
@given(situation=situations())
def test_chunked_forward_equals_full_forward(model: NGram, situation: Situation) -> None:
    """Also at its very ends, with rows that end before the cut. Catches: rows of length 0 lost their state."""
    tokens, lengths, past, cut = situation
    whole, final = model(tokens, after(model, past), lengths)
    first, state = model(tokens[:, :cut], after(model, past), lengths.clamp(max=cut))
    second, state = model(tokens[:, cut:], state, (lengths - cut).clamp(min=0))
    real = situation.real.unsqueeze(-1)
    same((torch.where(real, torch.cat([first, second], 1), 0), state), (torch.where(real, whole, 0), final))


@every_model
@given(situation=situations())
def test_causality(model: NGram, situation: Situation) -> None:
    """Catches: the token after each position was part of its context."""
    tokens, _, past, cut = situation
    changed = torch.cat([tokens[:, :cut], (tokens[:, cut:] + 1) % VOCABULARY], 1)
    state = after(model, past)
    assert torch.equal(model(changed, state)[0][:, :cut], model(tokens, state)[0][:, :cut])


@every_model
@given(situation=situations())
def test_rows_are_independent_and_padding_has_no_effect(model: NGram, situation: Situation) -> None:
    """Catches: the final state ignored the lengths."""
    tokens, lengths, past, _ = situation
    outputs, states = model(tokens, after(model, past), lengths)
    for row, length in enumerate(lengths.tolist()):
        alone, state = model(tokens[[row], :length], after(model, past[[row]]))
        same((outputs[[row], :length], states[[row]]), (alone, state))


@every_model
@given(situation=situations())
def test_inputs_are_not_modified_in_place(model: NGram, situation: Situation) -> None:
    """Catches: the state was changed in place."""
    tokens, lengths, past, _ = situation
    state = after(model, past)
    kept, kept_tokens, weights = state.clone(), tokens.clone(), {n: v.clone() for n, v in model.state_dict().items()}
    model.step(tokens[:, 0], state)
    model(tokens, state, lengths)
    model.losses(tokens, tokens, state, lengths)
    same((state, tokens), (kept, kept_tokens))
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


@every_model
@given(situation=situations(), shifted=st.booleans())
def test_losses_are_the_cross_entropy_of_the_logits(model: NGram, situation: Situation, shifted: bool) -> None:
    """Whether or not targets are the next inputs, which has a faster way. Catches: that way took each token's own
    context."""
    tokens, lengths, past, _ = situation
    targets = (3 * tokens + 1) % VOCABULARY
    if shifted:
        targets = torch.cat([tokens[:, 1:], targets[:, -1:]], 1)
    state = after(model, past)
    logits, final = model(tokens, state, lengths)
    losses, found = model.losses(tokens, targets, state, lengths)
    expected = -logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)  # of log-probabilities
    torch.testing.assert_close(losses, expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(found, final)


@every_model
@given(situation=situations())
def test_recording_has_no_effect_and_steps_record_what_sequences_do(model: NGram, situation: Situation) -> None:
    """Catches: a step's values had a time axis."""
    tokens, lengths, past, _ = situation
    state = after(model, past)
    with taps.record("*") as whole:
        recorded = model(tokens, state)
    same(recorded, model(tokens, state))
    with taps.record("*") as steps:
        walked(model, tokens, state)
    assert set(whole.sites()) == set(steps.sites()) == set(NGram.sites)
    for site in whole:
        assert torch.equal(whole[site], steps[site]), site
    plain = model.losses(tokens, tokens, state, lengths)
    with taps.record("order") as seen:
        same(model.losses(tokens, tokens, state, lengths), plain)
    assert torch.equal(seen["order"], whole["order"])


def test_the_order_of_a_token_is_the_longest_n_gram_that_ends_in_it() -> None:
    model = fitted([[1, 2, 3], [2, 4]], order=3, smoothing="kneser-ney")
    with taps.record("*") as seen:
        logits, _ = model(torch.tensor([[EOS, 1, 2, 4, 1, EOS, 2, 4, EOS]]))
    assert seen["order"].tolist() == [[1, 2, 3, 2, 1, 1, 2, 3, 3]]
    assert seen["context"].tolist() == [[1, 2, 2, 2, 1, 1, 2, 2, 1]]
    paid = seen["backoff"][0]
    assert paid[[0, 1, 2, 6, 7, 8]].tolist() == [0] * 6
    assert (paid[[3, 4, 5]] < 0).all()
    assert torch.equal(seen["output.logits"], logits)


def test_the_state_is_the_last_tokens_of_the_document() -> None:
    """Catches: what stands before the last `<eos>` but one was forgotten, not what stands before the last."""
    model = FITTED["five words"]
    assert model.initial_state(2).tolist() == [[-1] * 4] * 2
    assert model(torch.tensor([[1, 2, EOS, 3], [EOS, 1, 2, EOS]]))[1].tolist() == [[-1, -1, EOS, 3], [-1, -1, -1, EOS]]


def test_tapped_context_length_gives_a_lower_order_model() -> None:
    """Catches: the edited length was not used."""
    docs, tokens = regular(), torch.tensor([[EOS, 1, 2, 4, 1, EOS, 2]])
    long = fitted(docs, order=4, smoothing="witten-bell")
    short = fitted(docs, order=2, smoothing="witten-bell")
    with taps.edit({"context": lambda length: length.clamp(max=1)}):
        edited, _ = long(tokens)
    torch.testing.assert_close(edited, short(tokens)[0])
    assert not torch.allclose(edited, long(tokens)[0])


def test_n_gram_model_is_registered_and_runs_in_any_precision() -> None:
    assert MODELS["ngram"] is NGram
    model = fitted(regular(), order=3)
    tokens = torch.tensor([[EOS, 1, 2]])
    expected = model(tokens)[0]
    torch.testing.assert_close(model.double()(tokens)[0], expected.double())


@every_model
def test_cpp_step_equals_torch(model: NGram) -> None:
    """With document boundaries and unseen words. Catches: no backoff; a state that remembers what stands
    before an end."""
    tokens = torch.randint(VOCABULARY, (300,), generator=torch.Generator().manual_seed(2))
    state = model.initial_state(1)
    runner = Runner(compile_step(model), [state])
    for token in tokens.unsqueeze(1):
        expected, state = model.step(token, state)
        torch.testing.assert_close(runner.step(token), expected)
        assert torch.equal(runner.state[0], state)


def write(model: NGram, engine: str) -> tuple[list[int], Tensor]:
    config = GenerationConfig.make({"max_tokens": 200, "seed": 3, "stop_at_end": False, "engine": engine})
    written: list[Any] = [step[0] for step in generate_tokens(model, [[1, 2]], config, EOS)]
    return [one.token for one in written], torch.tensor([one.log_prob for one in written])


def test_cpp_step_generates_the_same_text_after_refitting() -> None:
    """Catches: after another fit, tables as long as those of the first."""
    model = fitted(regular(60), order=3)
    for docs in (regular(60), regular(500, seed=5)):
        list(model.fit(stored(docs)))
        (found, found_log_probs), (expected, log_probs) = (write(model, engine) for engine in ("native", "torch"))
        assert found == expected
        torch.testing.assert_close(found_log_probs, log_probs)
