"""Transducers: sums over all monotonic alignments; the end only at the end of the source."""

from itertools import combinations_with_replacement, pairwise, product
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.beam import search_all
from elman.batches import Examples, Ragged
from elman.generation import BeamConfig
from elman.models import Transducer, TransducerConfig
from elman.models.encoder_decoder.transducer import TransducerDecoder
from elman.ops.taps import record

WORDS, EOS = 6, 0


def build(seed: int = 0, **settings: Any) -> Transducer:
    torch.manual_seed(seed)
    whole = {"encoder": {"hidden_size": 8}, "decoder": {"hidden_size": 8}, **settings}
    model = Transducer(TransducerConfig.make(whole, where="model"), WORDS, WORDS, EOS).double().eval()
    for parameter in model.parameters():
        parameter.data *= 2
    return model


def ragged(*rows: list[int]) -> Ragged:
    longest = max(map(len, rows))
    values = torch.tensor([row + [0] * (longest - len(row)) for row in rows], dtype=torch.long)
    return Ragged(values, torch.tensor([len(row) for row in rows]))


SOURCE = ragged([1, 2, 3, 4], [5, 2], [], [3])
TARGET = ragged([2, 1, EOS], [4, 4, 2, 3, EOS], [EOS], [EOS])


def decoder_of(model: Transducer) -> TransducerDecoder:
    assert isinstance(model.decoder, TransducerDecoder)
    return model.decoder


def by_all_ways(model: Transducer, source: list[int], target: list[int]) -> Tensor:
    """The definition: each target token is emitted at a source position, never before that of the last one."""
    decoder, begun = decoder_of(model), model.start(ragged(source))
    given = torch.tensor([[EOS, *target[:-1]]])
    top, _ = decoder.stack(decoder.embedding(given), begun.layers, None)
    mixed = torch.tanh(decoder.from_top(top).unsqueeze(2) + begun.places.unsqueeze(1))[0]
    stay, stop = torch.sigmoid(decoder.moves(mixed)).unbind(-1)
    logits = decoder.logits(mixed)
    logits[..., EOS] = -torch.inf
    write = logits.softmax(-1)
    total, end = torch.zeros(()).double(), len(source) + 1
    for way in combinations_with_replacement(range(1, end), len(target) - 1):
        chance = torch.ones(()).double()
        for time, (before, place) in enumerate(pairwise([0, *way, end])):
            if place == before:
                chance = chance * stay[time, place]
            else:
                chance = chance * (1 - stay[time, before] if before else 1)
                chance = chance * (1 - stop[time, before + 1 : place]).prod()
                chance = chance * (stop[time, place] if place < end else 1)
            if place < end:
                chance = chance * write[time, place, target[time]]
        total = total + chance
    return total


@pytest.mark.parametrize("row", range(4))
def test_target_probability_is_the_sum_over_all_alignments(row: int) -> None:
    """Catches: no cost of passing a place; the end allowed inside; a word at the start."""
    model = build()
    source = SOURCE.values[row, : SOURCE.lengths[row]].tolist()
    target = TARGET.values[row, : TARGET.lengths[row]].tolist()
    if not source and len(target) > 1:
        pytest.skip("nothing can be written")
    found = model.losses(SOURCE, TARGET)[row].sum()
    with torch.no_grad():
        torch.testing.assert_close(found, -by_all_ways(model, source, target).log())


def test_decoder_steps_equal_forward() -> None:
    model = build()
    whole, state = model(SOURCE, TARGET), model.start(SOURCE)
    token = torch.full((4,), EOS)
    for time in range(TARGET.values.shape[1]):
        logits, state = model.step(token, state)
        for row in (TARGET.lengths > time).nonzero().flatten().tolist():
            torch.testing.assert_close(logits[row], whole[row, time])
        token = TARGET.values[:, time]


def test_target_may_be_processed_in_chunks() -> None:
    model = build()
    decoder, given = decoder_of(model), torch.tensor([[EOS, 2, 1, 3, 3]])
    begun = model.start(ragged([1, 2, 3]))
    whole, _ = decoder(given, begun)
    for cut in (1, 2, 4):
        first, state = decoder(given[:, :cut], begun)
        second, _ = decoder(given[:, cut:], state)
        torch.testing.assert_close(torch.cat([first, second], 1), whole)


def test_next_token_probabilities_sum_to_one() -> None:
    torch.testing.assert_close(build()(SOURCE, TARGET).exp().sum(-1), torch.ones(4, 5).double())


def test_probabilities_of_all_targets_sum_to_one() -> None:
    model = build()
    decoder_of(model).moves.bias.data -= 5  # short targets: those left out weigh little
    total = 0.0
    for length in range(4):
        targets = ragged(*([*words, EOS] for words in product(range(1, WORDS), repeat=length)))
        count = len(targets.lengths)
        total += float(model.losses(ragged(*[[1, 2]] * count), targets).sum(1).neg().exp().sum())
    assert 0.999 < total <= 1 + 1e-9


def test_empty_source_gives_an_empty_target() -> None:
    model = build()
    assert model.losses(SOURCE, TARGET)[2].sum() == pytest.approx(0, abs=1e-9)
    assert search_all(model, [[]], EOS)[0][0].tokens == []


def test_batching_and_padding_do_not_change_outputs() -> None:
    model = build()
    together = model.losses(SOURCE, TARGET)
    for row in range(4):
        source = ragged(SOURCE.values[row, : SOURCE.lengths[row]].tolist())
        target = ragged(TARGET.values[row, : TARGET.lengths[row]].tolist())
        alone = model.losses(source, target)
        torch.testing.assert_close(together[row, : alone.shape[1]], alone[0])


def test_training_loss_equals_evaluation_loss_and_reaches_all_parameters() -> None:
    model, batch = build(), Examples({"source": SOURCE, "target": TARGET}, "target")
    loss, _ = model.batch_loss(batch)
    torch.testing.assert_close(loss.detach(), model.losses(SOURCE, TARGET).sum())
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_label_smoothing_penalizes_confidence_in_training_only() -> None:
    smooth, plain = build(label_smoothing=0.2), build()
    batch = Examples({"source": SOURCE, "target": TARGET}, "target")
    assert smooth.batch_loss(batch)[0] == plain.batch_loss(batch)[0]
    loss, _ = smooth.train().batch_loss(batch)
    loss.backward()
    assert loss != plain.train().batch_loss(batch)[0]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in smooth.parameters())


def test_alignment_position_is_tapped() -> None:
    model = build()
    with record("*alignment") as seen:
        model(SOURCE, TARGET)
    (weights,) = (seen[site] for site in seen)
    assert weights.shape == (4, 5, 6)
    torch.testing.assert_close(weights.exp().sum(-1), torch.ones(4, 5))


@pytest.mark.slow
def test_a_transducer_learns_to_double_letters() -> None:
    torch.manual_seed(0)
    settings = {"encoder": {"hidden_size": 16}, "decoder": {"hidden_size": 16}}
    model = Transducer(TransducerConfig.make(settings), WORDS, WORDS, EOS)
    optimizer = torch.optim.Adam(model.parameters(), 2e-2)
    for _ in range(100):
        rows = [torch.randint(1, WORDS, (int(size),)).tolist() for size in torch.randint(1, 6, (32,))]
        target = ragged(*([word for word in row for _ in range(2)] + [EOS] for row in rows))
        loss, _ = model.batch_loss(Examples({"source": ragged(*rows), "target": target}, "target"))
        optimizer.zero_grad()
        (loss / 32).backward()
        optimizer.step()
    sources = [[1, 2, 3], [5, 5], [4, 1, 2, 3, 5, 4]]
    found = search_all(model, sources, EOS, BeamConfig(beam_size=3, max_tokens=30))
    assert [row[0].tokens for row in found] == [[w for w in row for _ in range(2)] for row in sources]
