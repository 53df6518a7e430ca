"""The verbs on a masked model: scores are marked as pseudo-likelihoods."""

import io
import json
import random

import pytest
import yaml

from elman.cli.main import main

TINY = ["--device", "cpu", "--model.hidden_size", "16", "--training.max_steps", "8", "--training.sequence_length", "16"]


@pytest.fixture(scope="module")
def gaps(tmp_path_factory):
    """A run folder; tests only read it."""
    folder = tmp_path_factory.mktemp("masked")
    data = folder / "text.txt"
    dice = random.Random(1)
    words = ["the", "a", "cat", "dog", "sat", "ran", "saw", "on", "and", "big"]
    data.write_text("".join(" ".join(dice.choices(words, k=dice.randint(2, 9))) + "\n" for _ in range(100)))
    with pytest.raises(SystemExit):
        main(["train", "--data", str(data), "--model", "masked", "--run", str(folder / "run"), *TINY])
    return folder / "run"


def test_train_shows_pseudo_perplexity_and_the_next_command(elman, text):
    ended = elman("train", "--data", text, "--model", "masked", *TINY)
    assert ended.code == 0
    assert (text.parent / "runs" / "text-masked" / "results.json").exists()
    assert "pseudo-perplexity" in ended.out
    assert "elman score runs/text-masked" in ended.out
    assert "elman generate" not in ended.out
    assert "pseudo-ppl" in ended.err
    assert max(map(len, [*ended.out.splitlines(), *ended.err.splitlines()])) <= 80


@pytest.mark.slow
def test_eval_names_the_pseudo_likelihood(elman, gaps):
    found = json.loads(elman("eval", gaps, "--json").out)
    assert found["kind"] == "pseudo-likelihood"
    assert "context on both sides" in found["context"]
    shown = elman("eval", gaps).out
    assert "Scores (pseudo-likelihood)" in shown
    assert "word pseudo-perplexity" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_score_notes_the_pseudo_likelihood_on_stderr(elman, gaps, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat sat\n\n"))
    ended = elman("score", gaps)
    assert [line.split("\t")[2] for line in ended.out.splitlines()] == ["the cat sat", ""]
    assert "note: pseudo-likelihood" in ended.err
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat sat\n"))
    ended = elman("score", gaps, "--json")
    assert json.loads(ended.out)["kind"] == "pseudo-likelihood"
    assert not ended.err


def test_left_to_right_models_report_likelihood(elman, trained, monkeypatch):
    assert json.loads(elman("eval", trained, "--json").out)["kind"] == "likelihood"
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat sat\n"))
    assert json.loads(elman("score", trained, "--json").out)["kind"] == "likelihood"


def test_generate_is_refused_before_any_output(elman, gaps):
    """Catches the prompt on stdout before the refusal."""
    for words in ([], ["--json"], ["--count", "2"]):
        ended = elman("generate", gaps, "--prompt", "the cat", *words)
        assert ended.code == 2
        assert ended.out == ""
        assert "such as --model lstm" in " ".join(ended.err.split())


def test_check_and_list_accept_masked_models(elman, text):
    found = json.loads(elman("check", "--data", text, "--model", "masked", *TINY, "--json").out)
    assert found["seconds_per_step"] > 0
    assert found["parameters"] > 1000
    names = json.loads(elman("list", "--json").out)
    assert names["models"]["masked"].startswith("Bidirectional stack")
    assert "two-way-attention" in names["layers"]


@pytest.mark.parametrize(("size", "layers"), [("tiny", 4), ("small", 8), ("large", 12)])
def test_size_counts_repetitions_of_the_pattern(elman, text, size, layers):
    """A block of attention alone would be no block. A single setting still wins."""
    words = ["train", "--data", text, "--model", "masked", "--size", size, "--print-config"]
    assert yaml.safe_load(elman(*words).out)["model"]["num_layers"] == layers
    assert yaml.safe_load(elman(*words, "--model.num_layers", "2").out)["model"]["num_layers"] == 2
    words[4] = "lstm"
    assert yaml.safe_load(elman(*words).out)["model"]["num_layers"] == layers // 4
    words[3:5] = ["--task", "masked"]
    assert yaml.safe_load(elman(*words).out)["model"]["num_layers"] == layers
    (text.parent / "gaps.yaml").write_text("model: masked\n")
    assert yaml.safe_load(elman("train", "gaps.yaml", *words[1:3], *words[5:]).out)["model"]["num_layers"] == layers


@pytest.mark.parametrize(("model", "layers"), [("attention", (2, 3)), ("mask-predict", (2, 3)), ("lstm", (1, 1))])
def test_size_keeps_encoder_and_decoder_blocks_whole(elman, text, model, layers):
    """Catches: one layer for each side, of which a Transformer's cannot see the source."""
    words = ["train", "--task", "translate", "--data", text, "--model", model, "--size", "tiny", "--print-config"]
    sides = yaml.safe_load(elman(*words).out)["model"]
    assert (sides["encoder"]["num_layers"], sides["decoder"]["num_layers"]) == layers


def test_a_bidirectional_layer_in_a_causal_model_is_refused(elman, text):
    ended = elman("train", "--data", text, "--model", "two-way-attention")
    assert ended.code == 2
    assert "such as masked" in " ".join(ended.err.split())
