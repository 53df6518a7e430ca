"""Modified Kneser-Ney against KenLM's estimator: every n-gram of generated corpora."""

import shutil
import sys

import pytest
from processes import ROOT

sys.path.insert(0, str(ROOT))  # benchmarks are beside the package

from benchmarks.attack.lmplz import agreement, generated, of_elman, of_lmplz

pytestmark = pytest.mark.skipif(shutil.which("lmplz") is None, reason="KenLM's lmplz is not on the PATH")


@pytest.mark.parametrize("number", range(6))
def test_lmplz_estimates_the_same(number, tmp_path):
    """Probabilities and back-off weights. Catches: discounts estimated from the n-grams that are kept; `<unk>` without
    a share of the probability; n-grams after `<s>` counted by what comes before them."""
    corpus = generated(f"test/{number}")
    found = agreement(of_lmplz(corpus, tmp_path), of_elman(corpus, tmp_path))
    assert found.ngrams > 100
    assert found.wrong == []


def test_another_estimate_is_seen(tmp_path):
    """Else the test above could not fail."""
    corpus = generated("test/1")
    assert agreement(of_lmplz(corpus, tmp_path), of_elman(corpus, tmp_path, smoothing="kneser-ney")).wrong
