"""Tokenizer files that make the library panic, abort or multiply a text are rejected in one sentence."""

import json

import pytest

from elman.errors import DataError
from elman.tokenizers.imported import Imported
from elman.tokenizers.library_file import make_library, read_content

WORDS = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}
PARTS = ("added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "padding", "truncation")


def replace(pattern, content, times=1):
    step = {"type": "Replace", "pattern": {"String": pattern}, "content": content}
    return {"type": "Sequence", "normalizers": [step] * times}


def nested(depth):
    inner = {"type": "NFC"}
    for _ in range(depth):
        inner = {"type": "Sequence", "normalizers": [inner]}
    return inner


REFUSED = {
    "doubles a text 28 times": ({"normalizer": replace("a", "aa", 28)}, r"makes up to 2\.68e\+08 characters of one"),
    "a million characters": ({"normalizer": {"type": "Prepend", "prepend": "x" * 10**6}}, "characters of one"),
    "decoder that multiplies": ({"decoder": {"type": "Replace", "pattern": {"Regex": "."}, "content": "a" * 99}}, "99"),
    "aborts": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////wAAAAAAAAAA"}},
        "characters of one",
    ),
    "panics when loaded": (
        {
            "model": {
                "type": "BPE",
                "vocab": {"a": 0, "b": 1},
                "merges": [["a", "b"]],
                "continuing_subword_prefix": "###",
            }
        },
        "damaged tokenizer",
    ),
    "panics at a text": ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "damaged tokenizer"),
    "panics at a token": (
        {"decoder": {"type": "Strip", "content": "a", "start": 10**18, "stop": 10**18}},
        "damaged tokenizer",
    ),
    "deeply nested": ({"normalizer": nested(150)}, "a tokenizer of 151 steps, but at most 64"),
    "vocabulary of 4e9": ({"model": {**WORDS, "vocab": {"a": 4 * 10**9}}}, "a tokenizer of 4000000001 tokens, but"),
    "added token of 4e9": ({"added_tokens": [{"id": 4 * 10**9, "content": "c"}]}, "4000000001 tokens"),
    "no vocabulary": ({"model": {**WORDS, "vocab": {}}}, "vocabulary is empty"),
    "wrong ids": ({"model": {**WORDS, "vocab": {"a": "b"}}}, "wrong ids"),
    "negative ids": ({"model": {**WORDS, "vocab": {"a": -1}}}, "wrong ids"),
    "a number for a vocabulary": ({"model": {**WORDS, "vocab": 7}}, "vocabulary is empty"),
    "no model": ({"model": None}, "it has no model"),
}


def opened(folder, **parts):
    content = {"version": "1.0", "model": WORDS, **dict.fromkeys(PARTS), "added_tokens": [], **parts}
    (folder / "t.json").write_text(json.dumps(content))
    return make_library(read_content(folder / "t.json"), folder / "t.json")


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_file_is_one_sentence(tmp_path, capfd, name):
    parts, reason = REFUSED[name]
    with pytest.raises(DataError, match=rf"t\.json: .*{reason}") as told:
        opened(tmp_path, **parts)
    assert "\n" not in str(told.value)
    assert capfd.readouterr().err == "", "what a panic prints"


def test_padding_to_a_length_is_not_done(tmp_path):
    """Catches: an abort, since 10^12 tokens take more than the memory."""
    pad = {"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}
    library = opened(tmp_path, padding=pad | {"pad_to_multiple_of": None})
    assert Imported(Imported.Config(), library).encode("b").tolist() == [1]


def test_a_panic_at_a_later_text_is_one_sentence(tmp_path):
    pattern = {"type": "Split", "pattern": {"Regex": "(c+)+$"}, "behavior": "Isolated", "invert": False}
    tokenizer = Imported(Imported.Config(), opened(tmp_path, pre_tokenizer=pattern))
    with pytest.raises(DataError, match="damaged tokenizer"):
        tokenizer.encode("c" * 40 + "d")


def test_a_step_as_real_tokenizers_have_is_read(tmp_path):
    steps = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    opened(tmp_path, normalizer={"type": "Sequence", "normalizers": steps})
