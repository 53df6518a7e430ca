"""Tokenizers in C++ give the tokens of the `tokenizers` library: a short form of benchmarks/exported_tokenizers.py.

Seen to fail: with a table of marks that misses one, an end of white space one too early, and a merge of the last of two
equal pairs.
"""

import random
import shutil
import sys

import pytest
from processes import ROOT

sys.path.insert(0, str(ROOT))  # benchmarks are beside the package

from benchmarks import exported_tokenizers as campaign
from elman.compiler.cpu.standalone.sources import HERE
from elman.errors import ConfigError
from elman.export import unicode_tables
from elman.export.tokenizer import LONGEST, encoder
from elman.tokenizers import IdTokenizer, train_tokenizer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler"),
]
EDGES = [b"", b" ", b"\n\n", b"'", b"a'", b"'s", b"\xff", b"\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a  b   "]
EDGES += ["e" + "\u0301" * 40, "<eos>", "x <eos>y <EOS>", "<<unk>>", "ab" * 500, "\u212a<UN\u212a>"]  # type: ignore[list-item]


@pytest.mark.parametrize("scheme", campaign.SCHEMES)
def test_texts_have_the_tokens_of_the_library(scheme):
    dice, tokenizer = random.Random(1), campaign.trained(scheme)
    compiled = campaign.Compiled(tokenizer, "-O0")
    texts = [one if isinstance(one, bytes) else one.encode() for one in EDGES]
    texts += [campaign.random_text(dice) for _ in range(1500)]
    assert [*campaign.differences(tokenizer, compiled, texts)] == []
    assert [*campaign.decoding_differences(tokenizer, compiled, 300, dice)] == []


def test_a_word_that_is_too_long_to_be_divided_is_an_error():
    compiled = campaign.Compiled(campaign.trained("bpe"), "-O0")
    assert f"1 << {LONGEST.bit_length() - 1};  // bytes of a word" in (HERE / "text.h").read_text()
    (most,) = compiled.encode([b"x" * LONGEST])
    assert len(most) == LONGEST
    with pytest.raises(ValueError, match="ended with 8"):
        compiled.encode([b"x" * (LONGEST + 1)])


def test_other_tokenizers_are_refused():
    with pytest.raises(ConfigError, match="type ids; the C library encodes with byte, bpe, character, word"):
        encoder(IdTokenizer.make(vocab_size=5))
    changed = train_tokenizer("character", ["abc"])
    changed.library.normalizer = unicode_tables.normalizers.NFKC()
    with pytest.raises(ConfigError, match="other steps"):
        encoder(changed)


def test_classes_of_characters_change_where_they_are_told_to():
    assert unicode_tables.change_points({5: 1, 6: 1, 9: 2}) == ([0, 5, 7, 9, 10], [0, 1, 0, 2, 0])
