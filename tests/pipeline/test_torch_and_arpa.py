"""Exports to plain torch and to ARPA files, and the import of these, give the scores of the run."""

import json

import pytest
import safetensors.torch
import torch
from tokenizers import Tokenizer
from torch import nn
from whole_runs import run

import elman
from elman.errors import ConfigError, UnknownName
from elman.pipeline.exporting import export_run
from elman.pipeline.importing import import_arpa

pytestmark = pytest.mark.slow
TEXTS = ["the cat sat", "a dog zzz", "sat the the cat ran"]


@pytest.mark.parametrize("kind", ["word", "character"])
@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
def test_an_arpa_file_there_and_back_gives_the_same_scores(folder, recipe, kind, name):
    """Catches ids of another order, and the lost escape of spaces."""
    run({**recipe, "tokenizer": kind, "model": {"type": "ngram", "order": 3}}, "runs/ngram")
    (note,) = export_run("runs/ngram", name, "arpa")
    assert f"elman import {name} reads it" in note
    brought = import_arpa(name, "runs/back")
    assert (brought.tokenizer, brought.architecture) == (kind, "n-gram")
    one, other = elman.load("runs/ngram"), elman.load("runs/back")
    known = [text for text in TEXTS if not one.tokenizer.unknowns(text)]
    assert known
    for text in known:
        assert other.score(text).log_prob == pytest.approx(one.score(text).log_prob, abs=1e-4)
    assert other.generate("the", max_tokens=3, temperature=0) == one.generate("the", max_tokens=3, temperature=0)


@pytest.mark.parametrize("model", [{"type": "lstm", "tied_embeddings": False}, {"type": "gru"}, {"type": "rnn"}])
def test_torch_modules_with_the_exported_weights_give_the_same_logits(folder, recipe, model):
    model = {**model, "hidden_size": 12, "num_layers": 2, "embedding_scale": 2.0}
    run({**recipe, "model": model}, "runs/mine")
    export_run("runs/mine", "torch", "torch")
    config = json.loads((folder / "torch" / "config.json").read_text())
    weights = safetensors.torch.load_file(folder / "torch" / "model.safetensors")
    embedding = nn.Embedding.from_pretrained(weights["embedding.weight"])
    recurrent = getattr(nn, config["module"])(**config["settings"])
    recurrent.load_state_dict({name[4:]: one for name, one in weights.items() if name.startswith("rnn.")})
    ids = Tokenizer.from_file("torch/tokenizer.json").encode("the cat", add_special_tokens=False).ids
    features, _ = recurrent(embedding(torch.tensor([[config["start_id"], *ids]])))
    logits = nn.functional.linear(features, weights["output.weight"], weights["output.bias"])
    trained = elman.load("runs/mine", "cpu")
    with torch.no_grad():
        expected, _ = trained.model(torch.tensor([[trained.tokenizer.start_id, *trained.tokenizer.encode("the cat")]]))
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)


def test_what_has_no_such_form_is_told(folder, recipe):
    run({**recipe, "model": {"type": "gru", "hidden_size": 8, "residual": True}}, "runs/mine")
    with pytest.raises(ConfigError, match="torch has modules for language models of rnn, gru or lstm layers alone"):
        export_run("runs/mine", "out", "torch")
    with pytest.raises(ConfigError, match="only n-gram models have an ARPA file"):
        export_run("runs/mine", "out.arpa", "arpa")
    with pytest.raises(UnknownName, match=r"unknown format 'arpe'.*did you mean 'arpa'"):
        export_run("runs/mine", "out", "arpe")
