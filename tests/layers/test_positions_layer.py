"""Position embeddings: counted per row, distinct, and wrapped around at the end of the table."""

import torch

from elman.layers import LAYERS


def build(width: int = 4, **settings):
    torch.manual_seed(0)
    return LAYERS["positions"](LAYERS["positions"].Config.make(settings), width)


def test_positions_continue_in_each_row() -> None:
    for kind in ("learned", "sinusoidal"):
        layer = build(kind=kind)
        whole, _ = layer(torch.zeros(1, 9, 4))
        _, state = layer(torch.zeros(2, 5, 4), None, torch.tensor([5, 2]))
        assert state.tolist() == [5, 2]
        rest, _ = layer(torch.zeros(2, 3, 4), state)
        assert torch.equal(rest, torch.stack([whole[0, 5:8], whole[0, 2:5]]))


def test_learned_positions_wrap_around_and_sinusoids_do_not() -> None:
    learned, _ = build(context=3)(torch.zeros(1, 6, 4))
    assert torch.equal(learned[:, :3], learned[:, 3:])
    waves, _ = build(kind="sinusoidal")(torch.zeros(1, 2000, 4))
    assert len(waves[0].unique(dim=0)) == 2000


def test_sinusoids_have_the_norm_of_token_embeddings() -> None:
    waves, _ = build(64, kind="sinusoidal")(torch.zeros(1, 50, 64))
    torch.testing.assert_close(waves.norm(dim=-1), torch.full((1, 50), 0.5**0.5))
    assert not list(build(kind="sinusoidal").parameters())
    big, _ = build(64, kind="sinusoidal", scale=1.0)(torch.zeros(1, 50, 64))
    torch.testing.assert_close(big, 8 * waves)
