"""elman list and elman inspect permutation: tables and JSON."""

import json

import pytest

from elman import __version__
from elman.layers import LAYERS


def test_list_facts_shows_every_family_with_its_costs(elman):
    """Seen to fail without the table of costs."""
    shown = elman("list", "--facts").out
    assert all(name in shown for name in [*LAYERS, "ngram"])
    for word in ["core idea", "known limitation", "training", "stepping", "state", "parameters", "1,572,864"]:
        assert word in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_list_json_has_every_name(elman):
    found = json.loads(elman("list", "--facts", "--json").out)
    assert found == json.loads(elman("list", "--json").out)["families"]
    assert found["lstm"]["stepping"] == {"formula": "4·width·(input + width)", "number": 524288}
    assert {"kind", "idea", "limitation", "training", "state", "parameters"} <= found["ngram"].keys()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gru", ["cell and layer", "known limitation", "3·width·(input + width)", "reset", "gate.update"]),
        ("mamba", ["(layer)", "9,728", "state_size", "16", "delta"]),
        ("ngram", ["(model)", "order − 1", "smoothing", "backoff"]),
        ("word", ["(tokenizer)", "min_frequency"]),
        ("markov", ["(language)", "seed"]),
    ],
)
def test_list_name_describes_it(elman, name, words):
    ended = elman("list", name)
    assert ended.code == 0
    assert all(word in ended.out for word in words), ended.out
    assert max(map(len, ended.out.splitlines())) <= 80
    found = json.loads(elman("list", name, "--json").out)
    assert {"name", "kinds", "what", "settings", "sites", "family"} == found.keys()


def test_list_of_an_unknown_name_suggests_the_nearest(elman):
    ended = elman("list", "lstn")
    assert ended.code == 2
    assert "lstm" in ended.err


@pytest.mark.slow
def test_inspect_permutation_shows_which_layers_see_order(elman):
    shown = elman("inspect", "permutation").out
    assert all(name in shown for name in LAYERS)
    assert "only the last token" in shown
    assert max(map(len, shown.splitlines())) <= 80
    found = json.loads(elman("inspect", "permutation", "--json").out)
    [plain] = [row for row in found if (row["name"], row["layers"]) == ("attention", 1)]
    assert not plain["changed"]
    assert plain["shuffled"] < 1e-6 < plain["replaced"]


def test_the_transformer_preset_is_listed(elman):
    assert "transformer" in json.loads(elman("list", "--json").out)["models"]
    assert json.loads(elman("list", "transformer", "--json").out)["kinds"] == ["model"]
    assert "feed-forward" in elman("list", "transformer").out


def test_version_is_printed(elman):
    assert elman("--version").out == f"elman {__version__}\n"
