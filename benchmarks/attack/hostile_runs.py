"""Hostile run folders: what a stranger can put into a run, signed anew, so that no manifest betrays it."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
import yaml

from benchmarks.attack import hostile_headers
from elman.runs import FileManifest
from elman.runs.manifest import make_manifest

REFUSED, HARMLESS = "refused", "refused or harmless"
EVAL, RESUME = ("eval", "run", "--json"), ("train", "--run", "run", "--resume")
GENERATE = ("generate", "run", "--prompt", "the", "--max-tokens", "5")
USES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("language model", "n-grams"), GENERATE),
    **dict.fromkeys(("classify", "tag", "translate", "regress"), ("predict", "run", "--data", "probe.txt")),
    "masked": ("inspect", "predictions", "run", "--text", "the cat sat"),
}
Build = Callable[[Path], Any]


class Case(NamedTuple):
    """A folder to attack with: which run it is made of, how, the command that opens it, and the expected answer."""

    name: str
    base: str
    build: Build  # given the working folder, which holds the copy `run` and, beside itself, `outside`
    command: tuple[str, ...]
    expected: str


def outside(work: Path) -> Path:
    """A folder that belongs to somebody else, with a secret and a file for every link."""
    return work.parent / "outside"


def sign(run: Path) -> None:
    """Makes the manifests of a changed run valid again, as its author could."""
    FileManifest(run).accept()
    for step in (*run.glob("best/step-*"), *run.glob("last/step-*")):
        contents = {path.name: path.read_bytes() for path in step.iterdir() if path.name != "manifest.json"}
        (step / "manifest.json").write_bytes(make_manifest(int(step.name.split("-")[1]), contents))


def settings(**changes: Any) -> Build:
    """Changed settings in config.yaml; `__` stands for a dot."""

    def build(work: Path) -> None:
        path = work / "run" / "config.yaml"
        found = yaml.safe_load(path.read_text())
        for name, value in changes.items():
            *sections, last = name.split("__")
            section = found
            for one in sections:
                section = section.setdefault(one, {})
            section[last] = value
        path.write_text(yaml.safe_dump(found))
        sign(work / "run")

    return build


def written(name: str, content: bytes | str | Callable[[bytes], bytes]) -> Build:
    """Another content of a file of the run, or of every checkpoint."""

    def build(work: Path) -> None:
        for path in [*(work / "run").glob(name)] or [work / "run" / name]:
            new = content(path.read_bytes()) if callable(content) else content
            path.write_bytes(new.encode() if isinstance(new, str) else new)
        sign(work / "run")

    return build


def replaced(name: str, put: Callable[[Path, Path], Any]) -> Build:
    """Something other than a file in its place: `put` gets the path, and a valid copy of the file outside."""

    def build(work: Path) -> None:
        path, kept = work / "run" / name, outside(work) / "copy"
        shutil.rmtree(kept, ignore_errors=True)
        kept.unlink(missing_ok=True)
        if path.is_dir():
            shutil.move(path, kept)
        else:
            kept.write_bytes(path.read_bytes() if path.exists() else b"")
            path.unlink(missing_ok=True)
        put(path, kept)

    return build


def _socket(path: Path, _: Path) -> None:
    held = os.getcwd()
    os.chdir(path.parent)  # its address is limited to 108 bytes
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)
    os.chdir(held)


def _sparse(path: Path, kept: Path) -> None:
    path.write_bytes(kept.read_bytes() if kept.is_file() else b"")
    os.truncate(path, 2**40)


def _folder(path: Path, _: Path) -> None:
    path.mkdir()


PLACES: dict[str, tuple[Callable[[Path, Path], Any], str, tuple[str, ...]]] = {
    "link to a file outside, training": (lambda path, kept: path.symlink_to(kept), "symbolic link", RESUME),
    "link to a device": (lambda path, _: path.symlink_to("/dev/zero"), "pipe or a device", ()),
    "link to nothing": (lambda path, _: path.symlink_to("nowhere"), HARMLESS, ()),
    "link to itself": (lambda path, _: path.symlink_to(path.name), REFUSED, ()),
    "pipe": (lambda path, _: os.mkfifo(path), "pipe or a device", ()),
    "socket": (_socket, "pipe or a device", ()),
    "folder": (_folder, HARMLESS, ()),
    "terabyte of zeros": (_sparse, HARMLESS, ()),
}


def in_place_of_files(runs: dict[str, Path]) -> Iterator[Case]:
    """Links, pipes, devices, sockets, folders and endless files in place of every file of every kind of run."""
    for base, run in runs.items():
        names = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
        for kind, (put, expected, command) in PLACES.items():
            few = base in ("language model", "n-grams", "translate") or kind.startswith(("link to a file", "pipe"))
            for name in names if few else names[:6]:
                yield Case(f"{kind}: {name}", base, replaced(name, put), command or EVAL, expected)
    for name in ("data", "best", "last", "samples", "plots"):
        put = PLACES["link to a file outside, training"][0]
        yield Case(f"link to a folder outside: {name}", "language model", replaced(name, put), RESUME, "symbolic link")


PATHS: tuple[str, ...] = (
    "/etc/passwd",
    "SECRET",
    "../outside/secret.txt",
    "hub:evil/data",
    "hf://evil/data",
    "https://example.com/a.txt",
)
PATHS += ("ftp://example.com/a", "file:///etc/passwd", "/**", "/dev/zero", "/proc/self/environ", "~/.ssh/id_rsa", "-")
PATHS += ("$HOME/.netrc", "s3://evil/data", "|id", "\\\\evil\\share", "PIPE")


def data_elsewhere(runs: dict[str, Path]) -> Iterator[Case]:
    """Paths and addresses in config.yaml: a bare command opens none of them."""
    for base in ("language model", "classify", "translate"):
        for place in PATHS:
            for key in ("train", "test"):
                build = settings(**{f"data__{key}": [place]})
                yield Case(f"data.{key} is {place}", base, _resolved(build), EVAL, HARMLESS)
    for place in PATHS:
        yield Case(f"data.train is {place}, nothing encoded", "n-grams", _unencoded(place), EVAL, REFUSED)
        yield Case(f"start_from is {place}", "classify", _resolved(settings(start_from=place)), EVAL, HARMLESS)


def _resolved(build: Build) -> Build:
    def resolve(work: Path) -> None:
        build(work)
        path = work / "run" / "config.yaml"
        path.write_text(
            path.read_text()
            .replace("SECRET", str(outside(work) / "secret.txt"))
            .replace("PIPE", str(outside(work) / "pipe"))
        )
        sign(work / "run")

    return resolve


def _unencoded(place: str) -> Build:
    def build(work: Path) -> None:
        shutil.rmtree(work / "run" / "data")
        _resolved(settings(data__train=[place], data__test=[place]))(work)

    return build


SIZES: tuple[str, ...] = (
    "model__hidden_size",
    "model__num_layers",
    "threads",
    "seed",
    "data__max_record_bytes",
    "training__batch_size",
)
SIZES += ("training__sequence_length", "training__max_epochs", "search__beam_size", "generation__max_tokens")
SIZES += ("evaluation__batch_size", "evaluation__lanes", "tokenizer__vocab_size", "parameters")
VALUES: tuple[Any, ...] = (
    10**6,
    10**9,
    10**12,
    10**30,
    -1,
    1e308,
    float("nan"),
    float("inf"),
    "x" * 1000,
    [10**9],
    True,
    {"a": {}},
)


def sizes(runs: dict[str, Path]) -> Iterator[Case]:
    """Numbers in config.yaml that would take hours or all memory, or are no numbers."""
    for name in SIZES:
        for value in VALUES:
            yield Case(f"{name} is {str(value)[:12]}", "language model", settings(**{name: value}), EVAL, HARMLESS)
    for value in VALUES:
        yield Case(f"order is {str(value)[:12]}", "n-grams", settings(model__order=value), EVAL, HARMLESS)


REFERENCES: dict[str, tuple[Any, ...]] = {
    "model__type": ("os.system", "/tmp/x.py", "../evil", "elman.models.Stack", "__import__('os')", "torch.nn:Linear"),
    "tokenizer__type": ("./evil.py", "evil:Tokenizer", "transformers", "__class__"),
    "task": ("evil.py", "os", "../evil", "__init__"),
    "_target_": ("os.system",),
    "auto_map": ({"AutoModel": "evil.Model"},),
    "trust_remote_code": (True,),
    "model___target_": ("os.system",),
    "model__pattern": (["os.system"], [{"evil.Layer": {}}], [{"gru": {"module": "evil"}}], "evil"),
    "data__module": ("evil.py",),
    "training__optimizer": ("os.system", "torch.optim.Adam"),
}


def references(runs: dict[str, Path]) -> Iterator[Case]:
    """Settings that would name code."""
    for name, values in REFERENCES.items():
        for value in values:
            build = settings(**{name: value})
            yield Case(f"{name} is {value}", "language model", build, EVAL, REFUSED)
            yield Case(f"{name} is {value}, training", "classify", build, RESUME, REFUSED)


def weights(runs: dict[str, Path]) -> Iterator[Case]:
    """Files of tensors that lie about their contents, in every checkpoint."""
    for base in ("language model", "n-grams"):
        for name, attack in hostile_headers.ATTACKS.items():
            build = written("*/step-*/weights.safetensors", attack)
            yield Case(f"weights: {name}", base, build, EVAL, REFUSED)
    for name, attack in hostile_headers.ATTACKS.items():
        build = written("last/step-*/training.safetensors", attack)
        yield Case(f"training state: {name}", "language model", build, RESUME, HARMLESS)


def _table(name: str, change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    def apply(data: bytes) -> bytes:
        tensors = safetensors.numpy.load(data)
        return safetensors.numpy.save({**tensors, name: np.ascontiguousarray(change(tensors[name]))})

    return apply


TABLES: dict[str, Callable[[bytes], bytes]] = {
    "keys far outside": _table("orders.1.keys", lambda keys: keys + 2**40),
    "negative keys": _table("orders.1.keys", lambda keys: keys - 2**50),
    "keys out of order": _table("orders.1.keys", lambda keys: keys[::-1]),
    "equal keys": _table("orders.1.keys", lambda keys: keys * 0),
    "largest keys": _table("orders.1.keys", lambda keys: keys * 0 + (2**63 - 1)),
    "no keys": _table("orders.1.keys", lambda keys: keys[:0]),
    "keys in two axes": _table("orders.1.keys", lambda keys: keys[None]),
    "keys as numbers": _table("orders.1.keys", lambda keys: keys.astype(np.float64)),
    "half of the log-probabilities": _table("orders.1.log_prob", lambda values: values[: len(values) // 2]),
    "one back-off weight": _table("orders.1.backoff", lambda values: values[:1]),
    "no back-off weights of words": _table("orders.0.backoff", lambda values: values[:0]),
    "one log-probability of words": _table("orders.0.log_prob", lambda values: values[:1]),
    "log-probabilities in double precision": _table("orders.1.log_prob", lambda values: values.astype(np.float64)),
    "NaN": _table("orders.2.log_prob", lambda values: values * np.nan),
}

VALID = {"no back-off weights of words", "log-probabilities in double precision"}


def tables(runs: dict[str, Path]) -> Iterator[Case]:
    """N-gram tables that a search would read or write beside."""
    for name, attack in TABLES.items():
        build = written("*/step-*/weights.safetensors", attack)
        for engine in ("native", "torch"):
            expected = HARMLESS if name in VALID else REFUSED
            yield Case(f"table: {name}, {engine}", "n-grams", build, (*GENERATE, "--engine", engine), expected)


CLASSES = (in_place_of_files, data_elsewhere, sizes, references, weights, tables)
