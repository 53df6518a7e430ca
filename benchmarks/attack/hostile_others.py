"""Hostile Hugging Face folders, races, recipes and tokenizers."""

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.attack import hostile_headers
from benchmarks.attack.hostile_contents import LISTED
from benchmarks.attack.hostile_headers import Payload
from benchmarks.attack.hostile_runs import (
    EVAL,
    GENERATE,
    HARMLESS,
    PLACES,
    REFUSED,
    Build,
    Case,
    outside,
    replaced,
    written,
)
from elman.runs import FileManifest

IMPORT = ("import", "run", "--run", "imported")
CANARY = "import os\nopen(os.environ['ELMAN_CANARY'], 'w').write('code ran')\n"
PROGRAMS: tuple[str, ...] = (
    "modeling_evil.py",
    "__init__.py",
    "torch.py",
    "json.py",
    "elman.py",
    "sitecustomize.py",
    "usercustomize.py",
)
PROGRAMS += ("conftest.py", "setup.py", "numpy.py", "tokenizers.py", "yaml.py", "evil.pth", "x.so")
PICKLES: tuple[str, ...] = (
    "pytorch_model.bin",
    "training_args.bin",
    "optimizer.pt",
    "scheduler.pt",
    "rng_state.pth",
    "model.pkl",
)
PICKLES += ("model.ckpt", "weights.pt", ".metadata", "tf_model.h5", "x.npy", "x.npz", "x.joblib")

KEYS: dict[str, Any] = {
    "auto_map": {"AutoConfig": "modeling_evil.Config", "AutoModelForCausalLM": "evil/repo--modeling_evil.Model"},
    "trust_remote_code": True,
    "_attn_implementation_internal": "evil/kernel",
    "attn_implementation": "evil/kernel",
    "_attn_implementation": "evil/kernel",
    "_name_or_path": "evil/repo",
    "base_model_name_or_path": "evil/repo",
    "_target_": "os.system",
    "custom_pipelines": {"x": {"impl": "evil.py"}},
    "quantization_config": {"quant_method": "evil", "modules": "os"},
    "text_config": {"trust_remote_code": True, "model_type": "gpt2"},
    "architectures": ["os.system"],
    "model_type": "../evil",
    "tokenizer_class": "evil.Tokenizer",
    "torch_dtype": "os.system",
    "vocab_size": 10**12,
    "eos_token_id": 10**30,
    "bos_token_id": -5,
    "layer_norm_epsilon": "x",
    "initializer_range": [1],
    "pruned_heads": {"0": [0]},
    "activation_function": "__import__",
    "hidden_act": "os.system",
    "chat_template": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "rope_scaling": {"type": "evil", "factor": 1e300},
}
COUNTS: tuple[str, ...] = (
    "n_layer",
    "num_hidden_layers",
    "n_embd",
    "hidden_size",
    "n_head",
    "num_attention_heads",
    "n_positions",
)
COUNTS += ("max_position_embeddings", "intermediate_size", "n_inner", "state_size", "num_local_experts")
AMOUNTS: tuple[Any, ...] = (10**5, 10**9, 10**30, -1, 0, 0.5, "x", [[]], None)


def _config(**changes: Any) -> Build:
    def build(work: Path) -> None:
        path = work / "run" / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return build


def _plain(name: str, content: bytes | str | Callable[[bytes], bytes]) -> Build:
    """A file of a folder that has no manifest."""

    def build(work: Path) -> None:
        path = work / "run" / name
        path.parent.mkdir(exist_ok=True)
        new = content(path.read_bytes()) if callable(content) else content
        path.write_bytes(new.encode() if isinstance(new, str) else new)

    return build


def _index(name: str) -> Build:
    """Weights in shards, of which one lies there."""

    def build(work: Path) -> None:
        run = work / "run"
        (run / "model.safetensors").rename(outside(work) / "copy")
        name_there = name.replace("PIPE", str(outside(work) / "pipe"))
        (run / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name_there}}))

    return build


def imports(folders: dict[str, Path]) -> Iterator[Case]:
    """What config.json, the index, the weights and the files beside them can hold."""
    for base in (name for name in folders if name.startswith("hf ")):
        for name, value in KEYS.items():
            yield Case(f"{name} is {str(value)[:40]}", base, _config(**{name: value}), IMPORT, HARMLESS)
        known = json.loads((folders[base] / "config.json").read_text())
        for name in (one for one in COUNTS if one in known):
            for amount in AMOUNTS:
                yield Case(f"{name} is {str(amount)[:12]}", base, _config(**{name: amount}), IMPORT, HARMLESS)
        for name, attack in hostile_headers.ATTACKS.items():
            expected = HARMLESS if name in ("a tensor too many", "bytes after the end") else REFUSED
            yield Case(f"weights: {name}", base, _plain("model.safetensors", attack), IMPORT, expected)
        for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            for kind, (put, _, _) in PLACES.items():
                yield Case(f"{kind}: {name}", base, replaced(name, put), IMPORT, HARMLESS)
    for name in LISTED:
        shown = name.replace("\x00", "NUL")[:40]
        yield Case(f"a shard is {shown}", "hf gpt2", _index(name), IMPORT, REFUSED)
    for name in PICKLES:
        yield Case(f"a pickle {name}", "hf gpt2", _pickled(name, only=False), IMPORT, HARMLESS)
        yield Case(f"nothing but a pickle {name}", "hf gpt2", _pickled(name, only=True), IMPORT, REFUSED)
        yield Case(f"a pickle {name} in a run", "language model", _plain(name, pickle.dumps(Payload())), EVAL, HARMLESS)
    for name in PROGRAMS:
        yield Case(f"a program {name}", "hf gpt2", _plain(name, CANARY), IMPORT, HARMLESS)
        yield Case(f"a program {name} in a run", "language model", _plain(name, CANARY), EVAL, HARMLESS)
    for name in ("tokenizer_config.json", "generation_config.json", "config.json", "special_tokens_map.json"):
        for text in (b"[" * 10**5, b"9" * 10**5, b"[]", b"null", b"", b"\xff\xfe", b'{"eos_token": [[{}]]}'):
            yield Case(f"{name}: {text[:24]!r}", "hf gpt2", _plain(name, text), IMPORT, HARMLESS)


def _pickled(name: str, only: bool) -> Build:
    def build(work: Path) -> None:
        (work / "run" / name).write_bytes(pickle.dumps(Payload()))
        if only:
            (work / "run" / "model.safetensors").unlink()

    return build


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
YAMLS: dict[str, tuple[bytes, str]] = {
    "alias bomb": (BOMB.encode(), REFUSED),
    "cycle": (b"name: &a [*a]\n", REFUSED),
    "merge of itself": (b"name: &a\n  <<: *a\n", REFUSED),
    "python object": (b"name: !!python/object/apply:os.system ['id']\n", REFUSED),
    "python name": (b"name: !!python/name:os.system\n", REFUSED),
    "python module": (b"name: !!python/module:os\n", REFUSED),
    "object of nothing": (b"name: !!python/object/new:subprocess.Popen [[id]]\n", REFUSED),
    "local tag": (b"name: !evil x\n", REFUSED),
    "tag directive": (b"%TAG ! tag:yaml.org,2002:python/\n---\nname: !object/apply:os.system [id]\n", REFUSED),
    "binary": (b"name: !!binary aGVsbG8=\n", REFUSED),
    "set": (b"name: !!set {a, b}\n", REFUSED),
    "date": (b"name: 2024-01-01\n", HARMLESS),
    "5,000 digits": (b"seed: " + b"9" * 5000 + b"\n", REFUSED),
    "sexagesimal": (b"seed: 1:00:00:00:00:00:00:00:00:00:00\n", HARMLESS),
    "octal": (b"seed: 0o777777777777777777777777777777777\n", HARMLESS),
    "100,000 brackets": (b"name: " + b"[" * 10**5 + b"\n", REFUSED),
    "100,000 braces": (b"name: " + b"{a: " * 10**5 + b"\n", REFUSED),
    "deep blocks": (b"".join(b" " * n + b"a:\n" for n in range(1500)), REFUSED),
    "100,000 keys": (b"".join(b"k%d: 1\n" % n for n in range(10**5)), REFUSED),
    "a key of a list": (b"? [a, b]\n: 1\n", REFUSED),
    "a key twice": (b"name: a\nname: b\n", HARMLESS),
    "nested task": (b"task: {task: {task: classify}}\n", REFUSED),
    "task of a list": (b"task: [classify]\n", REFUSED),
    "two documents": (b"name: a\n---\nname: b\n", REFUSED),
    "UTF-16": ("name: a\n".encode("utf-16"), HARMLESS),
    "NUL": (b"name: a\x00b\n", REFUSED),
    "2 MB": (b"name: " + b"x" * 2 * 10**6 + b"\n", REFUSED),
    "a list": (b"- a\n", REFUSED),
    "a text": (b"abc\n", REFUSED),
    "nothing": (b"", HARMLESS),
    "escape codes": (b'name: "\\e[31m\\a"\n', HARMLESS),
    "name of a path": (b"name: ../../../../tmp/evil\n", HARMLESS),
}


def recipes(folders: dict[str, Path]) -> Iterator[Case]:
    """YAML as the settings of a run, of a race, and as a recipe."""
    for name, (content, expected) in YAMLS.items():
        yield Case(f"YAML of a run: {name}", "n-grams", written("config.yaml", content), EVAL, HARMLESS)
        race = _plain_race("race.yaml", content)
        yield Case(f"YAML of a race: {name}", "race", race, ("compare", "--run", "run", "--resume", "--json"), HARMLESS)
        recipe = _plain("recipe.yaml", content)
        yield Case(f"recipe: {name}", "race", recipe, ("check", "run/recipe.yaml"), expected)


def _plain_race(name: str, content: bytes | Callable[[bytes], bytes]) -> Build:
    def build(work: Path) -> None:
        _plain(name, content)(work)
        folder = (work / "run" / name).parent
        FileManifest(folder).accept()

    return build


ENTRANTS = (
    "../evil",
    "/tmp/evil",
    "",
    ".",
    "..",
    "a/b",
    "a\x00b",
    "x" * 300,
    "\x1b[31m",
    "-rf",
    "CON",
    "a\nb",
    "<script>",
)
REPORT = ("compare", "--run", "run", "--resume", "--json", "--workers", "1")


def _entrant(name: str) -> Build:
    def build(work: Path) -> None:
        path = work / "run" / "race.yaml"
        found = yaml.safe_load(path.read_text())
        found["entrants"] = {name: {"type": "ngram", "order": 1}, "rnn": {}}
        path.write_text(yaml.safe_dump(found))
        FileManifest(work / "run").accept()

    return build


def _race_data(place: str) -> Build:
    def build(work: Path) -> None:
        path = work / "run" / "race.yaml"
        found = yaml.safe_load(path.read_text())
        found["recipe"]["data"]["train"] = [place]
        path.write_text(yaml.safe_dump(found))
        FileManifest(work / "run").accept()

    return build


def _array(array: Any) -> bytes:
    from io import BytesIO

    file = BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


HUGE = (
    b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (2, 1000000000000), }" + b" " * 40 + b"\n"
)
ARRAYS = {
    "objects": _array(np.array([[Payload()], [Payload()]], object)),
    "huge header": HUGE,
    "code in the header": HUGE.replace(b"(2, 1000000000000)", b"(__import__('os'),)"),
    "one axis": _array(np.zeros(3)),
    "no numbers": _array(np.zeros((2, 0))),
    "text": b"abc",
    "nothing": b"",
    "a pickle": pickle.dumps(Payload()),
}


def races(folders: dict[str, Path]) -> Iterator[Case]:
    """Names of entrants that are paths, results and arrays that are not what they should be, links."""
    for name in ENTRANTS:
        shown = repr(name)[:30]
        yield Case(f"an entrant called {shown}", "race", _entrant(name), REPORT, HARMLESS)
    for place in ("/etc/passwd", "hub:evil/data", "https://example.com/a", "/dev/zero", "../outside/secret.txt"):
        yield Case(
            f"data of the race: {place}", "race", _race_data(place), ("eval", "run/rnn/seed-1", "--json"), HARMLESS
        )
    for kind, content in ARRAYS.items():
        yield Case(f"units.npy: {kind}", "race", _plain_race("rnn/seed-1/units.npy", content), REPORT, HARMLESS)
    for name in ("results.json", "usage.json", "classes.json", "metrics.jsonl", "train.log"):
        for kind, content in (
            ("brackets", b"[" * 10**5),
            ("list", b"[]"),
            ("object", b"{}"),
            ("null", b"null"),
            ("bytes", b"\xff\xfe"),
            ("nested", b'{"valid": [[]], "test": {"loss": {}}}'),
            ("huge", b'{"valid": {"loss": 1e999}, "test": {"loss": 1e999}}'),
        ):
            yield Case(f"{name}: {kind}", "race", _plain_race(f"rnn/seed-1/{name}", content), REPORT, HARMLESS)
    for name in (
        "race.yaml",
        "rnn/seed-1/results.json",
        "rnn/seed-1/units.npy",
        "report.html",
        "results.jsonl",
        "plots",
    ):
        for kind, (put, _, _) in PLACES.items():
            yield Case(f"{kind}: {name}", "race", replaced(name, put), REPORT, HARMLESS)


WORDS = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}


def _tokenizer(**parts: Any) -> str:
    empty = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder", "padding", "truncation"))
    return json.dumps({"version": "1.0", "model": WORDS, "added_tokens": [], **empty, **parts})


def _model(**parts: Any) -> str:
    return _tokenizer(model={**WORDS, **parts})


def _step(**parts: Any) -> str:
    return _tokenizer(normalizer=parts)


TOKENIZERS = {
    "doubling 30 times": _step(
        type="Sequence", normalizers=[{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 30
    ),
    "a million characters before": _step(type="Prepend", prepend="x" * 10**6),
    "catastrophic expression": _step(type="Replace", pattern={"Regex": "(a+)+$"}, content="b"),
    "catastrophic split": _tokenizer(
        pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a|a)*b"}, "behavior": "Isolated", "invert": False}
    ),
    "wrong expression": _step(type="Replace", pattern={"Regex": "("}, content="b"),
    "damaged character map": _step(type="Precompiled", precompiled_charsmap="/////wAAAAAAAAAA"),
    "empty character map": _step(type="Precompiled", precompiled_charsmap=""),
    "unknown step": _step(type="os.system"),
    "pieces of length 0": _tokenizer(pre_tokenizer={"type": "FixedLength", "length": 0}),
    "pieces of length 2^60": _tokenizer(pre_tokenizer={"type": "FixedLength", "length": 2**60}),
    "cut of 10^18": _tokenizer(decoder={"type": "Strip", "content": "a", "start": 10**18, "stop": 10**18}),
    "padding to 10^12": _tokenizer(padding={"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_id": 0}),
    "vocabulary of 10^9": _model(vocab={"a": 10**9}),
    "vocabulary of 10^19": _model(vocab={"a": 10**19}),
    "negative id": _model(vocab={"a": -1}),
    "one id twice": _model(vocab={"a": 0, "b": 0}),
    "no words": _model(vocab={}),
    "vocabulary of a list": _model(vocab=[["a", 0.0]]),
    "unknown token that is unknown": _model(unk_token="nowhere"),
    "merges of unknown parts": _tokenizer(model={"type": "BPE", "vocab": {"a": 0}, "merges": [["x", "y"]]}),
    "merges that panic": _tokenizer(
        model={"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]], "continuing_subword_prefix": "###"}
    ),
    "100,000 merges": _tokenizer(model={"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "a"]] * 10**5}),
    "NaN scores": _tokenizer(model={"type": "Unigram", "vocab": [["a", float("nan")]], "unk_id": 0}),
    "unknown id outside": _tokenizer(model={"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 7}),
    "long words": _tokenizer(
        model={
            "type": "WordPiece",
            "vocab": {"a": 0},
            "unk_token": "a",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 2**62,
        }
    ),
    "added token of 1 MB": _tokenizer(added_tokens=[{"id": 2, "content": "x" * 10**6, "special": True}]),
    "added id of 10^9": _tokenizer(added_tokens=[{"id": 10**9, "content": "c", "special": False}]),
    "template of unknown tokens": _tokenizer(
        post_processor={
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "z", "type_id": 0}}],
            "pair": [],
            "special_tokens": {},
        }
    ),
    "deep": "[" * 10**5,
    "deep step": '{"model": {"type": "WordLevel", "vocab": {"a": 0}}, "normalizer": ' + '{"a":' * 10**5,
    "a list": "[]",
    "null": "null",
    "dropout": _tokenizer(model={"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [], "dropout": 0.5}),
}


def tokenizers(folders: dict[str, Path]) -> Iterator[Case]:
    """tokenizer.json, of a run and of a folder to import: what panics, multiplies texts or takes all memory."""
    for name, content in TOKENIZERS.items():
        build = written("tokenizer.json", content)
        yield Case(f"tokenizer: {name}", "language model", build, GENERATE, HARMLESS)
        yield Case(f"tokenizer: {name}, to import", "hf gpt2", _plain("tokenizer.json", content), IMPORT, HARMLESS)


CLASSES = (imports, recipes, races, tokenizers)
