"""Exports to plain torch and to ARPA files, and the import of these, give the scores of the run."""

import json

import pytest
import safetensors.torch
import torch
from tokenizers import Tokenizer
from torch import nn
from whole_runs import run

import elman
from elman.errors import ConfigError, DataError, UnknownName
from elman.export import export_run
from elman.models.stack import count_parameters
from elman.pipeline.importing import import_arpa
from elman.pipeline.importing_torch import import_torch

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


MODELS = [{"type": "lstm", "tied_embeddings": False}, {"type": "gru", "num_layers": 2}, {"type": "rnn", "bias": False}]
MODELS += [{"type": "rnn", "nonlinearity": "relu", "output_bias": False, "embedding_size": 6, "tied_embeddings": False}]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("tokenizer", ["word", "character"])
def test_an_exported_torch_model_comes_back_exactly(folder, recipe, model, tokenizer):
    """Catches a bias lost or merged, ties undone, and another nonlinearity, tokenizer or start of a text."""
    run({**recipe, "tokenizer": tokenizer, "model": {**model, "hidden_size": 12}}, "runs/mine")
    export_run("runs/mine", "torch", "torch")
    brought = import_torch("torch", "runs/back")
    one, other = elman.load("runs/mine", "cpu"), elman.load("runs/back", "cpu")
    assert brought.parameters == count_parameters(one.model)
    known = [text for text in TEXTS if not one.tokenizer.unknowns(text)]
    assert known
    for text in known:
        ids = torch.tensor([[one.tokenizer.start_id, *one.tokenizer.encode(text)]])
        assert ids.tolist() == [[other.tokenizer.start_id, *other.tokenizer.encode(text)]]
        with torch.no_grad():
            assert torch.equal(one.model(ids)[0], other.model(ids)[0])


def usual(kind, words=7, width=5, hidden=4, **more):
    """A language model as it is written in plain torch."""
    model = nn.Module()
    model.encoder, model.decoder = nn.Embedding(words, width), nn.Linear(hidden, words)
    model.rnn = kind(width, hidden, batch_first=True, **more)
    return model


@pytest.mark.parametrize(("kind", "more"), [(nn.LSTM, {}), (nn.GRU, {"num_layers": 2}), (nn.RNN, {"bias": False})])
@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize("form", ["x.safetensors", None])
def test_a_state_dict_of_torch_gives_the_same_logits(folder, kind, more, square, form):
    """Catches embedding and output exchanged where they have one shape, and torch's second bias lost."""
    torch.manual_seed(0)
    theirs = usual(kind, width=4 if square else 5, **more)
    weights = theirs.state_dict()
    if form:
        safetensors.torch.save_file(weights, form)
    brought = import_torch(form or weights, "runs/torch")
    assert brought.architecture == kind.__name__
    ours, ids = elman.load("runs/torch", "cpu"), torch.tensor([[0, 3, 6, 1, 1]])
    with torch.no_grad():
        expected = theirs.decoder(theirs.rnn(theirs.encoder(ids))[0])
        torch.testing.assert_close(ours.model(ids)[0], expected, rtol=0, atol=1e-6)
    assert ours.tokenizer.encode("3 6 1").tolist() == [3, 6, 1]


def test_what_is_no_such_state_dict_is_refused_and_no_pickle_is_read(folder, monkeypatch):
    def refused(content, match):
        with pytest.raises(DataError, match=match):
            import_torch(content, "runs/x")
        assert not (folder / "runs/x").exists()

    torch.save(usual(nn.LSTM).state_dict(), "x.pt")
    monkeypatch.setattr(torch, "load", None)
    refused("x.pt", "is a pickle, which elman never reads .save it again: safetensors")
    refused(usual(nn.LSTM).rnn.state_dict(), "an embedding .* are needed, but there is nothing")
    refused(usual(nn.LSTM, bidirectional=True).state_dict(), "two directions, or a projection")
    refused(usual(nn.LSTM, proj_size=2).state_dict(), "two directions, or a projection")
    refused(nn.Linear(2, 2).state_dict(), "has 0 recurrent modules")
    refused({**usual(nn.GRU).state_dict(), "more": torch.ones(3, 3)}, r"there is .*more \(3, 3\)")
    plain = {name: one for name, one in usual(nn.GRU, width=4).state_dict().items() if name != "decoder.bias"}
    refused(plain, "which of (en|de)coder.weight and (en|de)coder.weight is the embedding")
    whole = usual(nn.GRU, num_layers=2).state_dict()
    refused({name: one for name, one in whole.items() if name != "rnn.weight_hh_l1"}, "no complete")
    (folder / "x.safetensors").write_bytes(b"\0" * 40)
    refused("x.safetensors", "cannot be read as safetensors")
    refused("y.pt", "no such file")
