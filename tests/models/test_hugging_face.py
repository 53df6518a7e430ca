"""Random models of `transformers` against ours, for import and export."""

import os
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hugging_face_models import OURS, VOCAB, make_ours, scatter, write_folder

from elman.errors import ConfigError
from elman.generation import BeamConfig, beam_search
from elman.models import MODELS, prediction_of
from elman.models.hugging_face import FAMILIES, export_contents, from_folder
from elman.models.hugging_face.folder import ConfigReader

HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
TRANSFORMER = {
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "max_position_embeddings": 96,
    **HEADS,
}
GPT2 = {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 96}
MAMBA = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 5}
BERT = {key: value for key, value in TRANSFORMER.items() if key != "num_key_value_heads"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", GPT2),
    "gpt2-untied": ("GPT2", {**GPT2, "tie_word_embeddings": False, "n_inner": 24, "activation_function": "relu"}),
    "llama": ("Llama", TRANSFORMER),
    "llama-tied": (
        "Llama",
        {**TRANSFORMER, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "head_dim": 12},
    ),
    "mixtral": ("Mixtral", {**TRANSFORMER, "num_local_experts": 5}),
    "mixtral-window": ("Mixtral", {**TRANSFORMER, "num_local_experts": 3, "sliding_window": 7, "rms_norm_eps": 1e-3}),
    "mamba": ("Mamba", MAMBA),
    "mamba-untied": (
        "Mamba",
        {**MAMBA, "tie_word_embeddings": False, "use_bias": True, "use_conv_bias": False, "conv_kernel": 3},
    ),
    "bert": ("Bert", BERT),
    "bert-untied": ("Bert", {**BERT, "tie_word_embeddings": False, "type_vocab_size": 3, "layer_norm_eps": 1e-3}),
    "bert-masked": ("Bert", {**BERT, "mask_token_id": 7}),
}


@pytest.fixture(scope="session")
def transformers() -> Any:
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    found = pytest.importorskip("transformers")
    found.utils.logging.disable_progress_bar()
    return found


def make_theirs(transformers: Any, case: str) -> Any:
    kind, settings = CASES[case]
    marks = {"vocab_size": VOCAB, "bos_token_id": 3, "eos_token_id": 2}
    config = getattr(transformers, f"{kind}Config")(**marks, **settings)
    head = {"GPT2": "GPT2LMHeadModel", "Bert": "BertForMaskedLM"}.get(kind, f"{kind}ForCausalLM")
    return scatter(getattr(transformers, head)(config))


def greedy(model: Any, prompt: torch.Tensor, count: int) -> list[int]:
    """Through the step form."""
    logits, state = model(prompt, model.initial_state(1))
    tokens = [int(logits[0, -1].argmax())]
    for _ in range(count - 1):
        logits, state = model.step(torch.tensor(tokens[-1:]), state)
        tokens.append(int(logits.argmax()))
    return tokens


def assert_same(theirs: Any, ours: Any) -> None:
    tokens = torch.randint(VOCAB, (2, 70), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, found = theirs(tokens).logits[..., : ours.vocab_size], ours(tokens)[0]
        assert expected.std() > 0.3
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
        if prediction_of(ours) == "masked":
            return  # which has no step form
        prompt = tokens[:1, :8]
        free = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0, "max_new_tokens": 64}
        written = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), **free)
        assert greedy(ours, prompt, 64) == written[0, 8:].tolist()


@pytest.mark.parametrize("case", CASES)
def test_imported_model_equals_transformers(transformers, case, tmp_path):
    """Catches: queries and keys exchanged; gate and value exchanged; rotary pairs interleaved; weights not turned; a
    window one wider; the norm's epsilon left at its default; top norm left out."""
    theirs = make_theirs(transformers, case)
    theirs.save_pretrained(tmp_path / "theirs")
    assert_same(theirs, from_folder(tmp_path / "theirs"))


@pytest.mark.parametrize("beams", [3, 4])
def test_lists_of_beam_search_are_those_of_transformers(transformers, beams, tmp_path):
    """After prompts of which many have good hypotheses that end late. Catches: a search that stops when the best of
    its list is certain, which leaves worse entries in some lists."""
    for seed in (1, 2, 3):
        small = {"n_embd": 16, "n_head": 2, "n_layer": 1, "n_positions": 20, "bos_token_id": 0, "eos_token_id": 0}
        theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=9, **small)).eval()
        torch.manual_seed(seed)
        for parameter in theirs.parameters():
            parameter.data.normal_(0, 0.6)
        theirs.transformer.ln_f.bias.data += theirs.transformer.wte.weight.data[0] / 0.6  # the end is likely
        theirs.save_pretrained(tmp_path / str(seed))
        ours, prompts = from_folder(tmp_path / str(seed)), torch.randint(1, 9, (30, 5))
        prompts[:, -1] = 0  # which our search begins with
        free = {"do_sample": False, "pad_token_id": 0, "max_new_tokens": 12, "return_dict_in_generate": True}
        lists = {"num_beams": beams, "num_return_sequences": beams, "length_penalty": 0.0, "output_scores": True}
        expected = theirs.generate(prompts, attention_mask=torch.ones_like(prompts), **free, **lists)
        with torch.no_grad():
            state = ours(prompts[:, :-1], ours.initial_state(30))[1]
        found = beam_search(ours, state, 0, BeamConfig(beam_size=beams, max_tokens=12))
        torch.testing.assert_close(found.scores, expected.sequences_scores.view(30, beams), rtol=0, atol=1e-4)


def change_weight(folder: Path, name: str, weight: torch.Tensor | None) -> None:
    tensors = safetensors.torch.load((folder / "model.safetensors").read_bytes()) | {name: weight}
    kept = {key: value for key, value in tensors.items() if value is not None}
    safetensors.torch.save_file(kept, folder / "model.safetensors", {"format": "pt"})


TIED = [
    *((case, "lm_head.weight") for case in ("gpt2", "llama-tied", "mamba")),
    *(("bert", f"cls.predictions.decoder.{parameter}") for parameter in ("weight", "bias")),
]


@pytest.mark.parametrize(("case", "name"), TIED)
def test_a_head_of_its_own_is_imported_although_the_config_says_tied(transformers, case, name, tmp_path):
    """As transformers does. Catches: the head dropped."""
    theirs = make_theirs(transformers, case)
    theirs.save_pretrained(tmp_path / "theirs")
    change_weight(tmp_path / "theirs", name, torch.randn(theirs.get_parameter(name).shape))
    notes: list[str] = []
    ours = from_folder(tmp_path / "theirs", notes=notes)
    again = type(theirs).from_pretrained(tmp_path / "theirs").eval()
    assert_same(again, ours)
    with torch.no_grad():
        tokens = torch.arange(9).unsqueeze(0)
        assert (again(tokens).logits - theirs(tokens).logits).abs().max() > 0.1
    assert "tied, but they differ" in notes[0]


def test_of_tied_weights_either_may_be_missing(transformers, tmp_path):
    theirs = make_theirs(transformers, "gpt2")
    theirs.save_pretrained(tmp_path / "theirs")
    change_weight(tmp_path / "theirs", "lm_head.weight", theirs.lm_head.weight.detach().clone())
    change_weight(tmp_path / "theirs", "transformer.wte.weight", None)
    assert_same(theirs, from_folder(tmp_path / "theirs"))


@pytest.mark.parametrize("name", OURS)
def test_exported_model_equals_ours(transformers, name, tmp_path):
    ours = make_ours(name)
    family = write_folder(tmp_path / "ours", ours)
    assert family.name == name
    theirs = getattr(transformers, family.loader).from_pretrained(tmp_path / "ours").eval()
    assert type(theirs).__name__ == family.architecture
    assert_same(theirs, ours)


def test_exported_masked_model_has_an_output_bias_per_token(transformers, tmp_path):
    """Catches: the decoder's bias left out."""
    ours = make_ours("bert", tied_embeddings=False, mask_id=3)
    write_folder(tmp_path / "ours", ours)
    assert_same(transformers.BertForMaskedLM.from_pretrained(tmp_path / "ours").eval(), ours)


@pytest.mark.parametrize("name", OURS)
def test_export_and_import_round_trip(name, tmp_path):
    ours = make_ours(name)
    write_folder(tmp_path / "ours", ours)
    back = from_folder(tmp_path / "ours").state_dict()
    assert back.keys() == ours.state_dict().keys()
    for key, weight in ours.state_dict().items():  # a mask of ours becomes one of their words: one bias more
        assert torch.equal(weight, back[key][: len(weight)])


@pytest.mark.parametrize("name", [*OURS])
def test_every_config_key_of_transformers_is_handled(transformers, name):
    config = transformers.AutoConfig.for_model(name).to_dict()
    given = ConfigReader(config)
    settings = FAMILIES[name]().settings(given)
    given.finish()
    assert MODELS[FAMILIES[name].model].Config.make(settings).pattern


ATTENTION, SWIGLU = {"positions": "rotary", "num_heads": 4, "context": 80}, {"swiglu": {}}
CANNOT = [
    (
        "llama",
        {"output_bias": True},
        "model.output_bias is True, which a llama folder cannot express .there it is False",
    ),
    ("llama", {"residual": False}, "model.residual is False"),
    ("llama", {"norm": "post"}, "model.norm is 'post'"),
    ("llama", {"norm_type": "layer"}, "model.norm_type is 'layer'"),
    ("llama", {"positions": "sinusoidal"}, "model.positions is 'sinusoidal'"),
    ("llama", {"embedding_norm": True}, "model.embedding_norm is True"),
    ("llama", {"pattern": [{"attention": {**ATTENTION, "window": 9}}, SWIGLU]}, "layers.0.attention.window is 9"),
    ("llama", {"pattern": [{"attention": {**ATTENTION, "query_key_norm": True}}, SWIGLU]}, "query_key_norm is True"),
    ("llama", {"pattern": [{"attention": {**ATTENTION, "score": "dot"}}, SWIGLU]}, "attention.score is 'dot'"),
    ("llama", {"pattern": [{"attention": {"num_heads": 4}}, SWIGLU]}, "attention.positions is 'none'"),
    (
        "llama",
        {"pattern": [{"attention": ATTENTION}, SWIGLU, {"attention": {**ATTENTION, "rotary_base": 99.0}}, SWIGLU]},
        "layers.2.attention.rotary_base is 99.0",
    ),
    (
        "llama",
        {"pattern": ["lstm"], "num_layers": 0},
        r"no supported Hugging Face architecture has the block \[lstm\].*\[mamba\]",
    ),
    ("gpt2", {"max_positions": 2000}, "layers.0.attention.context is 1024.*there it is 2000"),
    ("gpt2", {"pattern": [{"attention": {}}, "feedforward"]}, "attention.bias is False"),
    ("mixtral", {"pattern": [{"attention": ATTENTION}, {"experts": {"expert": "feedforward"}}]}, "experts.expert is"),
    ("mamba", {"norm": "none"}, "model.norm is 'none'"),
    ("bert", {"head": "none"}, "model.head is 'none'"),
    ("bert", {"norm": "pre"}, "model.norm is 'pre'"),
    ("bert", {"type": "masked", "pattern": ["lstm"]}, r"block \[lstm\]"),
]


@pytest.mark.parametrize(("name", "settings", "says"), CANNOT)
def test_unexportable_model_is_rejected_by_its_first_setting(name, settings, says):
    with pytest.raises(ConfigError, match=says):
        export_contents(make_ours(name, **settings))


def test_export_of_n_gram_models_is_rejected():
    with pytest.raises(ConfigError, match=r"no supported Hugging Face architecture has the block \[ngram\]"):
        export_contents(MODELS["ngram"](MODELS["ngram"].Config(), VOCAB))
