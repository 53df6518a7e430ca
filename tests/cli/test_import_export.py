"""elman import and elman export: round trips, and every verb on an imported run."""

import io
import json
import os

import pytest
import safetensors.torch
import torch

from elman.cli.main import main
from elman.pipeline import load

TEXT = "".join(f"the cat sat on {number} big Haus\na dog saw {number} größe and ran\n" for number in range(60))
TINY = ["--device", "cpu", "--model.hidden_size", "16", "--training.max_steps", "8", "--training.sequence_length", "16"]
LLAMA = [{"attention": {"positions": "rotary", "context": 64, "num_heads": 2}}, {"swiglu": {}}]
BLOCKS = {"pattern": LLAMA, "norm": "pre", "norm_type": "rms", "residual": True, "output_bias": False}
OPTIONS = [word for key, value in BLOCKS.items() for word in (f"--model.{key}", json.dumps(value))]
PROMPT = ["--prompt", "the cat", "--max-tokens", "12", "--temperature", "0", "--json"]


@pytest.fixture(scope="module", params=["byte", "bpe", "character", "word"])
def exported(request, tmp_path_factory):
    """A small run and the folder it was exported to; tests only read them."""
    folder = tmp_path_factory.mktemp("exported")
    text = folder / "text.txt"
    text.write_text(TEXT)
    words = ["--tokenizer", request.param, "--run", folder / "run", *TINY, *OPTIONS]
    words += ["--tokenizer.vocab_size", "300"] if request.param == "bpe" else []
    for line in [["train", "--data", text, *words], ["export", folder / "run", "--to", folder / "out"]]:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in line])
        assert not ended.value.code
    return folder


def scores(elman, monkeypatch, run):
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat sat\nHaus größe\n"))
    return [json.loads(line) for line in elman("score", run, "--json").out.splitlines()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:a text is longer than the 64 positions")
def test_export_and_import_round_trip_gives_the_same_results(elman, exported, tmp_path, monkeypatch):
    """Catches: texts begun with another token; documents ended with token 1."""
    back = tmp_path / "back"
    assert elman("import", exported / "out", "--run", back).code == 0
    assert json.loads(elman("generate", back, *PROMPT).out) == json.loads(
        elman("generate", exported / "run", *PROMPT).out
    )
    found, expected = (scores(elman, monkeypatch, run) for run in (back, exported / "run"))
    if load(exported / "run").tokenizer.name == "word":  # how often a space is wide is not exported
        same = ("text", "log_prob", "tokens", "unknowns", "perplexity")
        found, expected = ([{key: one[key] for key in same} for one in scored] for scored in (found, expected))
    assert found == expected
    judged = [
        json.loads(elman("eval", run, "--data", exported / "text.txt", "--json").out)
        for run in (back, exported / "run")
    ]
    if load(exported / "run").tokenizer.name != "word":  # which takes lines for documents, where others take files
        assert judged[0] == judged[1]
    assert elman("export", back, "--to", tmp_path / "again").code == 0
    first, second = (
        json.loads((folder / "config.json").read_text()) for folder in (exported / "out", tmp_path / "again")
    )
    assert first == second


@pytest.mark.slow
def test_transformers_loads_an_exported_model(exported):
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.disable_progress_bar()
    ours = load(exported / "run", "cpu")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(exported / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported / "out")
    ids = tokenizer("the cat sat", return_tensors="pt").input_ids
    assert ids[0].tolist() == [ours.tokenizer.eos_id, *ours.tokenizer.encode("the cat sat")]
    with torch.no_grad():
        torch.testing.assert_close(ours.model(ids)[0], theirs(ids).logits, rtol=0, atol=1e-4)


@pytest.fixture
def bare(exported, tmp_path):
    """Without a tokenizer, and with its own mark for the start of a text."""
    folder = tmp_path / "bare"
    folder.mkdir()
    config = json.loads((exported / "out" / "config.json").read_text()) | {"bos_token_id": 5, "eos_token_id": [4, 9]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes((exported / "out" / "model.safetensors").read_bytes())
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("exported", ["byte"], indirect=True)
def test_a_model_without_a_tokenizer_reads_and_writes_token_ids(elman, bare, tmp_path, monkeypatch):
    """Catches: the start left out of scores, of evaluation, of prompts."""
    told = json.loads(elman("import", bare, "--run", tmp_path / "run", "--json").out)
    assert (told["tokenizer"], told["architecture"], told["vocab_size"]) == ("ids", "llama", 257)
    assert any("several eos_token_id" in note for note in told["notes"])
    assert any("texts are ids" in note for note in told["notes"])
    trained = load(tmp_path / "run", "cpu")
    tokens = torch.tensor([[5, 11, 12, 13]])
    with torch.no_grad():
        logs = trained.model(tokens)[0].log_softmax(-1)[0]
    expected = sum(float(logs[place, token]) for place, token in enumerate([11, 12, 13, 4]))
    assert trained.score("11 12 13").log_prob == pytest.approx(expected, abs=1e-4)
    (tmp_path / "ids.txt").write_text("11 12 13\n")
    judged = json.loads(elman("eval", tmp_path / "run", "--data", tmp_path / "ids.txt", "--json").out)
    assert (judged["tokens"], 4 * judged["loss"]) == (4, pytest.approx(-expected, abs=1e-4))
    made = json.loads(elman("generate", tmp_path / "run", "--prompt", "11 12", *PROMPT[2:]).out)
    assert made["text"].split()[0] == str(int(logs[2].argmax()))
    assert trained.trace("11").tokens == ["5", "11"]
    ended = elman("generate", tmp_path / "run", "--prompt", "hello")
    assert (ended.code, "texts are ids" in ended.err) == (1, True)


@pytest.mark.parametrize("exported", ["byte"], indirect=True)
def test_a_text_beyond_the_positions_of_an_imported_model_is_pointed_out(elman, bare, tmp_path):
    """Attention slides there, where that of transformers sees everything. Catches: other numbers in silence."""
    told = json.loads(elman("import", bare, "--run", tmp_path / "run", "--json").out)
    assert any("it has 64 positions" in note for note in told["notes"])
    trained = load(tmp_path / "run", "cpu")
    trained.score(" ".join(["11"] * 63))
    generation = {"temperature": 0, "stop_at_end": False}
    trained.generate("11 " * 60, max_tokens=3, **generation)
    longer = "longer than the 64 positions of the imported model"
    with pytest.warns(UserWarning, match=longer):
        trained.score(" ".join(["11"] * 64))
    with pytest.warns(UserWarning, match=longer):
        trained.generate("11 " * 60, max_tokens=4, **generation)
    with pytest.warns(UserWarning, match=longer):
        trained.reading("11 " * 64)


@pytest.mark.parametrize("exported", ["byte"], indirect=True)
def test_an_imported_run_refuses_unsupported_verbs_with_a_reason(elman, bare, tmp_path):
    assert elman("import", bare, "--run", tmp_path / "run").code == 0
    ended = elman("train", "--run", tmp_path / "run", "--resume")
    assert (ended.code, "was imported, not trained here" in ended.err) == (2, True)
    ended = elman("eval", tmp_path / "run")
    assert (ended.code, "give one with --data" in ended.err) == (2, True)
    ended = elman("import", bare, "--run", tmp_path / "run")
    assert (ended.code, "contains a run already" in ended.err) == (1, True)
    ended = elman("generate", bare)
    assert (ended.code, f"elman import {bare}" in ended.err) == (1, True)
    ended = elman("import", tmp_path / "nothing")
    assert (ended.code, "no such folder" in ended.err) == (1, True)


@pytest.mark.parametrize("exported", ["byte"], indirect=True)
def test_import_of_a_tokenizer_without_eos_fails_and_leaves_no_files(elman, exported, bare, tmp_path):
    (bare / "tokenizer.json").write_bytes((exported / "out" / "tokenizer.json").read_bytes())
    config = json.loads((bare / "config.json").read_text())
    (bare / "config.json").write_text(json.dumps(config | {"eos_token_id": None, "bos_token_id": None}))
    ended = elman("import", bare, "--run", tmp_path / "run")
    assert (ended.code, "which token ends a text" in ended.err) == (1, True)
    assert not (tmp_path / "run").exists()
    (bare / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<eos>"}}))
    assert elman("import", bare, "--run", tmp_path / "run").code == 0
    assert load(tmp_path / "run").tokenizer.eos_id == 0


@pytest.mark.parametrize("exported", ["byte"], indirect=True)
def test_import_of_non_finite_weights_fails_and_leaves_no_files(elman, bare, tmp_path):
    tensors = safetensors.torch.load((bare / "model.safetensors").read_bytes())
    tensors["model.norm.weight"][0] = torch.nan
    safetensors.torch.save_file(tensors, bare / "model.safetensors")
    ended = elman("import", bare, "--run", tmp_path / "run")
    assert (ended.code, "not finite" in ended.err) == (1, True)
    assert not (tmp_path / "run").exists()


def test_export_refuses_a_model_without_a_hugging_face_architecture(elman, trained, tmp_path):
    ended = elman("export", trained, "--to", tmp_path / "out")
    assert (ended.code, "no supported Hugging Face architecture has the block [lstm]" in ended.err) == (2, True)
    assert not (tmp_path / "out").exists()
    ended = elman("export", trained, "--to", tmp_path / "out", "--format", "huging-face")
    assert (ended.code, "did you mean 'hugging-face'" in ended.err) == (2, True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "something").touch()
    ended = elman("export", trained, "--to", tmp_path / "out")
    assert (ended.code, "is there already" in ended.err) == (1, True)


@pytest.mark.parametrize("exported", ["byte"], indirect=True)
def test_export_prints_how_to_load_the_model(elman, exported, tmp_path):
    ended = elman("export", exported / "run", "--to", tmp_path / "out")
    assert f'AutoModelForCausalLM.from_pretrained("{tmp_path / "out"}")' in ended.out
    assert "AutoTokenizer" in ended.out
    told = json.loads(elman("export", exported / "run", "--to", tmp_path / "other", "--json").out)
    assert told["format"] == "hugging-face"


BERT = [{"two-way-attention": {"bias": True, "num_heads": 2}}, {"feedforward": {}}]
GAPS = {"type": "masked", "pattern": BERT, "norm": "post", "embedding_norm": True, "head": "dense", "max_positions": 64}


@pytest.fixture(scope="module")
def gaps(tmp_path_factory):
    """A small masked model and the folder it was exported to."""
    folder = tmp_path_factory.mktemp("gaps")
    (folder / "text.txt").write_text(TEXT)
    words = [word for key, value in GAPS.items() for word in (f"--model.{key}", json.dumps(value))]
    words += ["--tokenizer", "bpe", "--tokenizer.vocab_size", "300", *TINY]
    train = ["train", "--data", folder / "text.txt", "--run", folder / "run", *words]
    for line in [train, ["export", folder / "run", "--to", folder / "out"]]:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in line])
        assert not ended.value.code
    return folder


@pytest.mark.slow
def test_export_and_import_round_trip_of_a_masked_model(elman, gaps, tmp_path, monkeypatch):
    """Catches: the mask not told; an added mask among the answers."""
    told = elman("import", gaps / "out", "--run", tmp_path / "back")
    assert "elman score" in told.out
    assert "which token is the mask" not in told.out
    before, after = (scores(elman, monkeypatch, run) for run in (gaps / "run", tmp_path / "back"))
    for one, other in zip(before, after, strict=True):
        assert (one["tokens"], one["kind"]) == (other["tokens"], "pseudo-likelihood")
        assert one["log_prob"] == pytest.approx(other["log_prob"], abs=1e-4)
    ended = elman("generate", tmp_path / "back", "--prompt", "the")
    assert ended.code == 2


def test_transformers_loads_an_exported_masked_model(gaps):
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.disable_progress_bar()
    ours = load(gaps / "run", "cpu")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(gaps / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(gaps / "out")
    assert tokenizer.mask_token_id == ours.model.mask_id
    ids = tokenizer("the cat <mask> on", return_tensors="pt").input_ids
    assert ids[0, -1] == ours.tokenizer.eos_id
    assert (ids == tokenizer.mask_token_id).sum() == 1
    with torch.no_grad():
        expected = theirs(ids).logits
    torch.testing.assert_close(ours.model(ids)[0], expected[..., : ours.model.vocab_size], rtol=0, atol=1e-4)
    assert expected.argmax(-1).max() < ours.model.vocab_size


@pytest.mark.slow
def test_a_masked_model_without_a_tokenizer_gets_a_mask_token(elman, gaps, tmp_path):
    (tmp_path / "bare").mkdir()
    config = json.loads((gaps / "out" / "config.json").read_text()) | {"mask_token_id": None}
    (tmp_path / "bare" / "config.json").write_text(json.dumps(config))
    (tmp_path / "bare" / "model.safetensors").write_bytes((gaps / "out" / "model.safetensors").read_bytes())
    told = json.loads(elman("import", tmp_path / "bare", "--run", tmp_path / "run", "--json").out)
    assert any("which token is the mask" in note for note in told["notes"])
    trained = load(tmp_path / "run", "cpu")
    assert trained.model.mask_id == trained.tokenizer.vocab_size
    assert trained.score("5 6 7").log_prob < 0
    (tmp_path / "ids.txt").write_text("11 12 13\n")
    judged = json.loads(elman("eval", tmp_path / "run", "--data", tmp_path / "ids.txt", "--json").out)
    assert judged["kind"] == "pseudo-likelihood"


def test_special_tokens_are_found_by_their_bert_names(elman, gaps, tmp_path):
    (tmp_path / "bert").mkdir()
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / "bert" / name).write_bytes((gaps / "out" / name).read_bytes())
    config = json.loads((gaps / "out" / "config.json").read_text())
    unsaid = {"mask_token_id": None, "eos_token_id": None, "bos_token_id": None}
    (tmp_path / "bert" / "config.json").write_text(json.dumps(config | unsaid))
    names = {"mask_token": "<mask>", "sep_token": "<eos>"}
    (tmp_path / "bert" / "tokenizer_config.json").write_text(json.dumps(names))
    assert elman("import", tmp_path / "bert", "--run", tmp_path / "run").code == 0
    trained = load(tmp_path / "run", "cpu")
    assert (trained.model.mask_id, trained.tokenizer.eos_id) == (300, 0)
