"""Settings that no machine can serve are rejected in one sentence, before anything is built."""

import re

import pytest

from elman.errors import ConfigError
from elman.limits import LIMIT_OF, Limits, limits
from elman.pipeline.recipe import read_recipe

HUGE = {
    "seed": "seed",
    "threads": "threads",
    "model.num_layers": "layers",
    "model.hidden_size": "width",
    "model.max_positions": "count",
    "training.sequence_length": "count",
    "training.max_epochs": "count",
    "training.batch_size": "count",
    "search.beam_size": "candidates",
    "generation.max_tokens": "count",
    "generation.seed": "seed",
    "tokenizer.vocab_size": "vocabulary",
    "data.max_record_bytes": "amount",
}


@pytest.mark.parametrize("setting", HUGE)
@pytest.mark.parametrize("value", [10**19, 10**30])
def test_a_setting_beyond_its_limit_is_one_sentence(setting, value):
    with pytest.raises(ConfigError, match=f"at most .*more with ELMAN_LIMITS=.{HUGE[setting]}=1") as told:
        read_recipe({"tokenizer": "bpe"}, {setting: str(value)})
    assert "\n" not in str(told.value)
    assert setting.rpartition(".")[2] in str(told.value)


def test_a_limit_that_is_named_in_an_error_can_be_raised_as_it_says(monkeypatch):
    wanted = {"model.pattern": ["rnn"] * 4097, "model.hidden_size": 1}
    with pytest.raises(ConfigError, match="pattern has 4097 entries, but at most 4096") as told:
        read_recipe(None, wanted)
    monkeypatch.setenv("ELMAN_LIMITS", re.search(r'ELMAN_LIMITS="(.*?)"', str(told.value))[1])
    assert len(read_recipe(None, wanted).model.pattern) == 4097


@pytest.mark.parametrize(
    ("model", "limit"),
    [
        ({"hidden_size": 2**17, "pattern": ["attention"], "num_layers": 8}, "parameters"),
        ({"pattern": [{"experts": {"num_experts": 2000}}]}, "tensors"),
        ({"type": "ngram", "order": 65}, "order"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_model_that_is_too_large_is_rejected_when_its_recipe_is_read(monkeypatch, model, limit):
    monkeypatch.setenv("ELMAN_LIMITS", "tensors=1000")
    with pytest.raises(ConfigError, match=rf"{limit}="):
        read_recipe({"model": model})


def test_every_limit_of_a_setting_exists_and_is_documented():
    fields = Limits.described_fields()
    assert set(LIMIT_OF.values()) <= fields.keys()
    assert all(field.description for field in fields.values())
    assert limits().memory > 2**20
