"""Alignment: cross-attention weights under teacher forcing, their accuracy, and maps of any tokens."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest
import torch
from PIL import Image

from elman.batches import Ragged
from elman.errors import RecordingError
from elman.inspection.attention import alignment, attention_hits, map_figure
from elman.models import EncoderDecoder, EncoderDecoderConfig

EOS = 0
SOURCE = Ragged(torch.tensor([[1, 2, 3, EOS], [4, EOS, 0, 0]]), torch.tensor([4, 2]))
TARGET = Ragged(torch.tensor([[3, 2, EOS], [4, EOS, 0]]), torch.tensor([3, 2]))
TRANSFORMER = [{"cross-attention": {"num_heads": 2}}, "feedforward", {"cross-attention": {"num_heads": 4}}]


def build(**decoder: Any) -> EncoderDecoder:
    torch.manual_seed(0)
    settings = {"encoder": {"hidden_size": 8}, "decoder": {"hidden_size": 8, **decoder}}
    return EncoderDecoder(EncoderDecoderConfig.make(settings), 6, 6, EOS)


@pytest.mark.parametrize(
    ("decoder", "heads"),
    [
        ({"dropout": 0.5}, 1),
        ({"attention": {"num_heads": 4}}, 4),
        ({"input_feeding": True}, 1),
        ({"pattern": TRANSFORMER, "attention": None, "context": [], "residual": True}, 6),
    ],
    ids=["one head", "four heads", "input feeding", "cross-attention layers"],
)
def test_an_alignment_sums_to_one_at_real_positions(decoder: dict[str, Any], heads: int) -> None:
    """Seen to fail without the mask of the target, and with layers stacked instead of joined."""
    model = build(**decoder).train()
    weights = alignment(model, SOURCE, TARGET)
    assert weights.shape == (2, 3, heads, 4)
    torch.testing.assert_close(weights.sum(-1), TARGET.mask()[:, :, None].float().expand(-1, -1, heads))
    assert not weights[1, :, :, 2:].any(), "padding of the source"
    assert model.training, "the mode of the model is restored"
    assert torch.equal(weights, alignment(model, SOURCE, TARGET)), "without dropout"


def test_a_model_without_attention_has_no_alignment() -> None:
    with pytest.raises(RecordingError, match="cross-attention"):
        alignment(build(attention=None), SOURCE, TARGET)


def test_hits_are_the_steps_with_the_maximum_at_the_right_position() -> None:
    """Catches the maximum over heads, and with padding counted as steps."""
    weights = torch.zeros(2, 3, 1, 4)
    for row, time, place in [(0, 0, 3), (0, 1, 2), (0, 2, 0), (1, 0, 1)]:
        weights[row, time, 0, place] = 0.9
    assert attention_hits(weights, [(3, 2, 1), (1,)]) == 3 / 4
    assert attention_hits(weights, [(3,), (1,)]) == 1
    assert attention_hits(weights, [(), (0,)]) == 0
    split = torch.tensor([[[[0.6, 0.0, 0.4], [0.0, 0.4, 0.6]]]])
    assert attention_hits(split, [(2,)]) == 1, "of the mean over heads"


SHAPES = [(1, 1, 1), (3, 1, 150), (40, 2, 5), (12, 6, 9), pytest.param((130, 1, 130), marks=pytest.mark.slow)]


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_maps_of_any_size_are_valid_images(tmp_path: Path, shape: tuple[int, int, int]) -> None:
    time, _, places = shape
    weights = torch.rand(shape).softmax(-1)
    svg, png = map_figure(weights, ["ab"] * places, ["c"] * time, "title").save_images(tmp_path / "new" / "map")
    assert [svg.name, png.name] == ["map.svg", "map.png"]
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    with Image.open(png) as image:
        image.verify()
        assert max(image.size) <= 4000


def words_of(svg: Path) -> list[str]:
    return [x.text.strip() for x in ElementTree.parse(svg).iter() if x.text and x.text.strip()]


def draw(tmp_path: Path, weights: torch.Tensor, source: list[str], target: list[str], title: str = "") -> list[str]:
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text as text
        return words_of(map_figure(weights, source, target, title).save_images(tmp_path / "map")[0])


@pytest.mark.slow
def test_every_head_and_token_is_named(tmp_path: Path) -> None:
    """Catches source and target exchanged."""
    found = draw(tmp_path, torch.rand(2, 3, 4), list("abcd"), ["x", "<eos>"], "where")
    assert {"head 1", "head 2", "head 3", "a", "d", "x", "<eos>", "where", "attention weight"} <= {*found}
    assert "head 1" not in draw(tmp_path, torch.rand(2, 4), list("abcd"), ["x", "y"])


@pytest.mark.slow
def test_padding_is_not_drawn_and_too_few_weights_are_a_bug(tmp_path: Path) -> None:
    draw(tmp_path, torch.rand(5, 1, 9), ["a"], ["b"])
    with pytest.raises(AssertionError, match="2 tokens"):
        draw(tmp_path, torch.rand(1, 1, 9), ["a"], ["b", "c"])


def test_characters_of_all_scripts_and_dollar_signs_are_drawn_literally(tmp_path: Path) -> None:
    """Warnings are errors here: matplotlib warns of missing glyphs and parses dollars as math text. Seen to fail with
    unprepared labels and with math text."""
    source = ["中文", "$x_1$", "naïve", "שלום", "😀", " ", "\n", "", "\x00", "\U0001f9ff", "\ue000", "👩\u200d🔬"]
    found = draw(tmp_path, torch.rand(1, 1, len(source)), source, ["x" * 40], "$odd$ \u4e2d")
    assert {"$x_1$", "naïve", "␣", "↵", "∅", "[0]", "[E000]", "x" * 15 + "…"} <= {*found}


@pytest.mark.slow
def test_many_labels_are_thinned_out_until_they_are_readable(tmp_path: Path) -> None:
    """Catches every label kept."""
    names = [f"w{number}" for number in range(600)]
    found = [word for word in draw(tmp_path, torch.rand(1, 1, 600), names, ["x"]) if word.startswith("w")]
    assert 20 < len(found) < 300
    assert found[:2] == ["w0", f"w{600 // len(found)}"]
