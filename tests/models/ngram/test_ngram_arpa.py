"""ARPA files: round trips, and agreement with KenLM as an independent reader."""

import gzip
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st
from ngram_cases import EOS, SMOOTHINGS, fitted, regular

from elman.errors import DataError
from elman.models.ngram import NGram, arpa, read_arpa, write_arpa
from elman.ops import taps

SIZE = 40
WORDS = [
    "<eos>",
    "<unk>",
    "a b",
    "<s>",
    "</s>",
    "\\u{20}",
    "\\",
    "\x00",
    "\n",
    "ſ",
    *(f"w{i}" for i in range(10, SIZE)),
]
PLAIN = ["<eos>", "<unk>", *(f"w{i}" for i in range(2, SIZE))]


@pytest.fixture(scope="module", params=SMOOTHINGS)
def model(request: pytest.FixtureRequest) -> NGram:
    return fitted(regular(3000, vocab_size=SIZE - 1), SIZE, order=4, smoothing=request.param, prune=[1, 1, 2])


def weights_differ(a: NGram, b: NGram) -> float:
    own, other = a.state_dict(), b.state_dict()
    assert all(own[name].shape == other[name].shape for name in own)
    tables = [name for name in own if name.startswith("orders.")]
    return max(float((own[name] - other[name]).abs().max()) for name in tables if own[name].numel())


@pytest.mark.parametrize("suffix", ["arpa", "arpa.gz"])
def test_arpa_round_trips(model: NGram, suffix: str, tmp_path: Path) -> None:
    """Catches: words with white space as they are; a word that reads `<s>` taken for the beginning; the back-off of
    `<s>` lost; -99 read as a number."""
    write_arpa(model, WORDS, tmp_path / f"model.{suffix}")
    for words in (None, WORDS):
        again, found = read_arpa(tmp_path / f"model.{suffix}", words)
        assert found == WORDS
        assert weights_differ(model, again) < 2e-6


def test_unigram_model_round_trips(tmp_path: Path) -> None:
    model = fitted(regular(), order=1)
    words = ["<eos>", *"abcde"]
    write_arpa(model, words, tmp_path / "model.arpa")
    assert weights_differ(model, read_arpa(tmp_path / "model.arpa", words)[0]) < 1e-6


def test_a_file_can_be_read_into_another_vocabulary(tmp_path: Path) -> None:
    """In another order, with one unknown word, and without a word whose n-grams are dropped."""
    model = fitted([[2, 3, 4], [2, 3, 1]] * 3, 5, order=3, smoothing="witten-bell")
    write_arpa(model, ["<eos>", "<unk>", "a", "b", "c"], tmp_path / "model.arpa")
    other, _ = read_arpa(tmp_path / "model.arpa", ["<eos>", "<unk>", "new", "b", "a"])
    before, after = model(torch.tensor([[EOS, 2]]))[0][0, -1], other(torch.tensor([[EOS, 4]]))[0][0, -1]
    torch.testing.assert_close(after[[0, 1, 3, 4]], before[[0, 1, 3, 2]])
    unigrams = model.tables[0].log_prob
    assert other.tables[0].log_prob[2] == pytest.approx(float(unigrams[1]), abs=1e-6)


FOREIGN = """\\data\\
ngram 1=5
ngram 2=2
ngram 3=1

\\1-grams:
-99\t<s>\t-0.5
-1.0\t</s>
-2.0\t<unk>
-0.4\ta\t-0.1
-0.6\tb\t-0.2

\\2-grams:
-0.3\t<s> a\t-0.05
-0.7\ta b\t-0.3

\\3-grams:
-0.2\ta b a

\\end\\
"""


def test_reads_n_grams_whose_suffix_was_pruned(tmp_path: Path) -> None:
    """As other tools prune: `a b a` without `b a`. Catches: what was paid at the missing length was not forgotten."""
    (tmp_path / "model.arpa").write_text(FOREIGN)
    model, words = read_arpa(tmp_path / "model.arpa")
    assert words == ["<eos>", "<unk>", "a", "b"]
    losses, _ = model.losses(torch.tensor([[EOS, 2, 3, 2]]), torch.tensor([[2, 3, 2, EOS]]))
    expected = [0.3, 0.05 + 0.7, 0.2, 0.1 + 1.0]
    assert (losses[0] / math.log(10)).tolist() == pytest.approx(expected, abs=1e-6)


def test_end_of_document_has_no_back_off_weight(tmp_path: Path) -> None:
    """Catches: the back-off of `<s>` stood at `</s>` too."""
    write_arpa(fitted([[1, 2, 3]], 4, order=2), ["<eos>", "a", "b", "c"], tmp_path / "model.arpa")
    lines = [line.split("\t") for line in (tmp_path / "model.arpa").read_text().splitlines()]
    backoffs = {line[1]: float(line[2]) for line in lines if len(line) == 3}
    assert backoffs["</s>"] == 0
    assert backoffs["<s>"] < 0


def kenlm_of(path: Path) -> Any:
    kenlm = pytest.importorskip("kenlm", reason="the package kenlm is not installed")
    config = kenlm.Config()
    config.show_progress = False
    return kenlm.Model(str(path), config)


@pytest.mark.parametrize("order", [2, 3, 6])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_kenlm_gives_the_same_probabilities_for_our_file(smoothing: str, order: int, tmp_path: Path) -> None:
    """Probability and matched length of every word of random sentences. Catches: a length too small by one."""
    model = fitted(regular(3000, vocab_size=SIZE - 1), SIZE, order=order, smoothing=smoothing)
    write_arpa(model, PLAIN, tmp_path / "model.arpa")
    judge = kenlm_of(tmp_path / "model.arpa")
    random = np.random.default_rng(1)
    for _ in range(50):
        ids = random.integers(1, SIZE, size=random.integers(0, 12)).tolist()
        sentence = " ".join("never-seen" if id == 1 else PLAIN[id] for id in ids)
        expected = list(judge.full_scores(sentence, bos=True, eos=True))
        losses, _ = model.losses(torch.tensor([[EOS, *ids]]), torch.tensor([[*ids, EOS]]))
        with taps.record("order") as seen:
            model(torch.tensor([[EOS, *ids, EOS]]))
        for loss, matched, (log10, length, _) in zip(losses[0], seen["order"][0, 1:], expected, strict=True):
            assert matched == length
            if log10 > -90:  # beyond, the format says "never"
                assert float(loss) == pytest.approx(-log10 * math.log(10), rel=1e-5, abs=1e-5)
            else:
                assert math.isinf(loss)


@tried(max_examples=200)
@given(word=st.text(list("as</>\\u{}20 \n\t\0\x85\u2028é"), min_size=1))
def test_any_token_can_be_escaped_as_a_word(word: str) -> None:
    written = arpa._escape(word)
    assert arpa._unescape(written) == word
    assert len(written.split()) == 1
    assert written not in ("<s>", "</s>")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text.replace("\\end\\", ""), "ends before"),
        (lambda text: "hello\n", "line 1: not an ARPA file"),
        (lambda text: "\\data\\\n\\end\\\n", "line 2: it has no section"),
        (lambda text: text.replace("ngram 2=", "engram 2="), "line 3: 'engram 2=4' is no part of an ARPA file"),
        (lambda text: re.sub("ngram 2=.*\nngram 3=.*\n", "", text), r"no count given for \\2-grams"),
        (lambda text: text.replace("ngram 2=", "ngram 7="), "line 3: 'ngram 7=4' is out of order"),
        (lambda text: text.replace("\\2-grams", "\\3-grams"), r"\\2-grams: should come before \\3-grams:"),
        (lambda text: text.replace("ngram 2=4", "ngram 2=3"), "is no part of an ARPA file here; or a count"),
        (lambda text: text.replace("ngram 1=", "ngram 1=999999999999"), "line 12: '' is not `log10"),
        (lambda text: text.replace("ngram 3=", "ngram 3=99"), r"'' is not `log10"),
        (lambda text: text[: text.index("\n\n\\end")] + "\n", "ends before"),
        (
            lambda text: text.replace("ngram 3=", "ngram 3=99").split("\n\n\\end")[0],
            "the file ends after 3 of 993 3-grams",
        ),
        (lambda text: _orders(text, 100), "the order is 65, but at most 64"),
        (lambda text: text.replace("\ta\t", "\tb\t"), "line 7: duplicate word 'b'"),
        (lambda text: text.replace("\ta\t", "\t\t"), "'' is not 1 words"),
        (lambda text: re.sub(".*\ta b\t", "nan\ta b\t", text), "a probability above 1"),
        (lambda text: re.sub(".*\ta b\t", "0.5\ta b\t", text), "a probability above 1"),
        (lambda text: re.sub("\ta b\t.*", "\ta b\tinf", text), "a back-off that is no number"),
        (lambda text: text.replace("\tb c\t", "\tb \udcff\t"), "line 16, column 12: invalid UTF-8"),
        (lambda text: text.replace("\t", " "), "line 7: .*is not `log10 TAB words"),
        (lambda text: text.replace("\ta b\t", "\ta b c\t"), r"'a b c' is not 2 words"),
        (lambda text: text.replace("\ta b c", "\tc b c"), r"context of 'c b c'"),
        (lambda text: text.replace("\ta b c", "\t<s> a b"), "duplicate n-gram"),
        (lambda text: text[: len(text) // 2], "is not `log10 TAB words|ends before"),
    ],
)
def test_damaged_file_is_rejected_with_the_line(change: Any, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "model.arpa"
    write_arpa(fitted([[1, 2, 3]], 4, order=3), ["<eos>", "a", "b", "c"], path)
    path.write_text(change(path.read_text()), errors="surrogateescape")
    with pytest.raises(DataError, match=reason):
        read_arpa(path)


def _orders(text: str, count: int) -> str:
    return text.replace("ngram 3=", "".join(f"ngram {n}=0\n" for n in range(3, count)) + f"ngram {count}=")


def test_damaged_gzip_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.arpa.gz"
    write_arpa(fitted([[1, 2, 3]], 4, order=3), ["<eos>", "a", "b", "c"], path)
    whole = path.read_bytes()
    for content in (whole[:-20], whole[:40] + b"\0\0\0" + whole[43:], b"plain"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"model\.arpa\.gz: damaged gzip data"):
            read_arpa(path)
    monkeypatch.setenv("ELMAN_LIMITS", "unpacked_bytes=1e6")
    path.write_bytes(gzip.compress(b"\n" * 10**7))
    with pytest.raises(DataError, match="unpacks to more than 200 times its size"):
        read_arpa(path)
    with pytest.raises(DataError, match="no such file"):
        read_arpa(tmp_path / "other.arpa")


def mutated(content: bytes, random: np.random.Generator) -> bytes:
    """With one to three bytes or lines changed, left out, doubled, or replaced by what parsers stumble over."""
    unit = random.choice(["bytes", "lines"])
    parts = [content[i : i + 1] for i in range(len(content))] if unit == "bytes" else content.splitlines(keepends=True)
    for _ in range(random.integers(1, 4)):
        place, other = random.integers(len(parts), size=2).tolist()
        strange = random.choice(
            [b"\xff", b"\0", b"9" * 30, b"-", b"nan", b"\t", b" ", b"\r", b"\\3-grams:\n", b"1e400"]
        )
        parts[place] = [b"", parts[other], 2 * parts[place], bytes(strange), random.bytes(1)][random.integers(5)]
    return b"".join(parts[: random.integers(len(parts))] if random.random() < 0.1 else parts)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["arpa", "arpa.gz"])
def test_mutated_files_are_read_or_refused(suffix: str, tmp_path: Path) -> None:
    """Catches: UnicodeDecodeError, EOFError, IndexError, OverflowError."""
    path, random = tmp_path / f"model.{suffix}", np.random.default_rng(0)
    write_arpa(fitted(regular(200, vocab_size=5), 6, order=3), ["<eos>", "<unk>", "a", "b", "c", "d"], path)
    content, read = path.read_bytes(), 0
    for number in range(300):
        changed = mutated(content, random)
        if suffix.endswith("gz") and number % 2:
            changed = gzip.compress(mutated(gzip.decompress(content), random))
        path.write_bytes(changed)
        try:
            model, words = read_arpa(path)
        except DataError:
            continue
        read += 1
        losses, _ = model.losses(torch.tensor([[EOS, 1]]), torch.tensor([[1, 1]]))
        assert len(words) == model.vocab_size
        assert not losses.isnan().any()
    assert 0 < read < 200
