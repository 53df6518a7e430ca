"""The laws of sequence layers, each written once, for every registered layer in every form that can run.

Each was seen to fail: the bug that was planted for it stands in its docstring.
"""

import torch
from hypothesis import given
from law_cases import Case, Situation, assert_same, real_positions, results, situations, walk

from elman.layers import LAYERS
from elman.ops.state import map_state, take_rows, tensors


@given(situation=situations())
def test_agreement_and_gradients_stepping_gives_what_forward_gives(case: Case, situation: Situation) -> None:
    """Laws 1 and 4, for outputs, final state and gradients. Planted: forward dropped the initial state; state detached
    in a step; the vendor's gates in another order."""
    layer = situation.layer(case)
    x, state = situation.x(), situation.state(layer)
    with case.running():
        assert_same(results(layer, type(layer).forward, x, state), results(layer, walk, x, state))


@given(situation=situations())
def test_agreement_no_state_means_the_initial_state(case: Case, situation: Situation) -> None:
    """Law 1. Planted: ones instead of zeros where no state is given."""
    layer = situation.layer(case)
    x = situation.x()
    with case.running():
        assert_same(layer(x), walk(layer, x, layer.initial_state(situation.batch)))


@given(situation=situations(shortest=2))
def test_cutting_a_sequence_may_be_cut_anywhere(case: Case, situation: Situation) -> None:
    """Law 2, with gradients through the cut and rows that end before it. Planted: the final state was detached;
    rows that had ended lost their state in the next piece."""
    layer = situation.layer(case)
    x, state, cut, lengths = situation.x(), situation.state(layer), situation.cut, situation.lengths
    real = real_positions(lengths, situation.time)

    def whole(layer, x, state):
        return layer(x, state, lengths)

    def halves(layer, x, state):
        first, state = layer(x[:, :cut], state, lengths.clamp(max=cut))
        second, state = layer(x[:, cut:], state, (lengths - cut).clamp(min=0))
        return torch.cat([first, second], 1), state

    with case.running():
        assert_same(results(layer, halves, x, state, real), results(layer, whole, x, state, real))


@given(situation=situations())
def test_cutting_an_empty_piece_changes_nothing(case: Case, situation: Situation) -> None:
    """Law 2 at the very ends. Planted: an empty sequence returned the initial state."""
    layer = situation.layer(case)
    state = situation.state(layer)
    outputs, after = layer(situation.x()[:, :0], state)
    assert outputs.shape == (situation.batch, 0, layer.output_size)
    assert_same(after, state)


@given(situation=situations(shortest=2))
def test_causality_changing_the_future_never_changes_the_past(case: Case, situation: Situation) -> None:
    """Law 3. Planted: the input was shifted by one, so that each step saw its successor."""
    layer = situation.layer(case)
    x, state, cut = situation.x(), situation.state(layer), situation.cut
    changed = torch.cat([x[:, :cut], 5 - 3 * x[:, cut:]], 1)
    with case.running():
        assert_same(layer(changed, state)[0][:, :cut], layer(x, state)[0][:, :cut])


@given(situation=situations())
def test_values_nothing_changes_the_state_or_the_input_it_was_given(case: Case, situation: Situation) -> None:
    """Law 5, so that histories can be branched and kept. Planted: a step wrote the new state into the old one."""
    layer = situation.layer(case)
    x, state = situation.x(), situation.state(layer)
    kept, kept_x = map_state(torch.clone, state), x.clone()
    with case.running(), torch.no_grad():
        _, after = layer.step(x[:, 0], state)
        kept_after = map_state(torch.clone, after)
        assert_same(layer.step(x[:, 0], state)[1], after, 0)
        layer.step(x[:, -1], after)
        layer(x, after, situation.lengths)
        layer(x, state)
    assert_same((state, x, after), (kept, kept_x, kept_after), 0)


@given(situation=situations())
def test_rows_a_batch_gives_what_its_rows_give_alone(case: Case, situation: Situation) -> None:
    """Law 6. Planted: some of the batch's mean leaked in; the vendor's rows were not put back in order."""
    layer = situation.layer(case)
    x, state, lengths = situation.x(), situation.state(layer), situation.lengths

    def together(layer, x, state):
        return layer(x, state, lengths)

    def alone(layer, x, state):
        rows = [layer(x[[i]], take_rows(state, [i]), lengths[[i]]) for i in range(len(x))]
        return torch.cat([outputs for outputs, _ in rows]), map_state(
            lambda *parts: torch.cat(parts), *(s for _, s in rows)
        )

    real = real_positions(lengths, situation.time)
    with case.running():
        assert_same(results(layer, together, x, state, real), results(layer, alone, x, state, real))


@given(situation=situations())
def test_rows_padding_changes_neither_real_outputs_nor_the_final_state(case: Case, situation: Situation) -> None:
    """Law 6, against each row cut to its real length; rows of length 0 keep their state. Planted: lengths off by one
    (each way); the final state was the one after the last padded position; rows of length 0 got zeros."""
    layer = situation.layer(case)
    x, state, lengths = situation.x(), situation.state(layer), situation.lengths
    real = real_positions(lengths, situation.time)
    noise = torch.where(real.unsqueeze(-1), x, 50 * torch.sin(100 * x))

    def padded(layer, x, state):
        return layer(x, state, lengths)

    def cut(layer, x, state):
        outputs, states = [], []
        for i, length in enumerate(lengths.tolist()):
            row, after = torch.zeros(1, 0, layer.output_size, dtype=x.dtype), take_rows(state, [i])
            if length:
                row, after = layer(x[[i], :length], after)
            outputs.append(torch.nn.functional.pad(row, (0, 0, 0, x.shape[1] - length)))
            states.append(after)
        return torch.cat(outputs), map_state(lambda *parts: torch.cat(parts), *states)

    with case.running():
        assert_same(results(layer, padded, noise, state, real), results(layer, cut, noise, state, real))


@given(situation=situations())
def test_contract_sizes_and_kinds(case: Case, situation: Situation) -> None:
    """What whoever stacks layers builds on. Planted: output_size was the input's."""
    layer = situation.layer(case)
    x, state = situation.x(), layer.initial_state(situation.batch)
    with case.running():
        outputs, after = layer(x, state)
    assert isinstance(layer, LAYERS[case.name])
    assert layer.input_size == situation.input_size
    assert outputs.shape == (situation.batch, situation.time, layer.output_size)
    assert type(after) is type(state)
    for (_, before), (_, part) in zip(tensors(state), tensors(after), strict=True):
        assert (part.dtype, part.shape[0]) == (before.dtype, situation.batch)
