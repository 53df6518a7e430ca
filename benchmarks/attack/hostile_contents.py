"""Hostile contents of a run's own files: facts of checkpoints, JSON, encoded data and manifests, signed anew."""

import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attack.hostile_runs import EVAL, HARMLESS, REFUSED, RESUME, USES, Build, Case, outside, sign, written
from elman.runs.manifest import signed


def _at(path: tuple[Any, ...], value: Any) -> Callable[[bytes], bytes]:
    """JSON with another value there, or without it."""

    def apply(data: bytes) -> bytes:
        content = part = json.loads(data)
        for key in path[:-1]:
            part = part[key]
        if value is None:
            del part[path[-1]]
        else:
            part[path[-1]] = value
        return json.dumps(content).encode()

    return apply


def _leaves(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(content, list) and content:
        yield from _leaves(content[0], (*path, 0))


def facts(runs: dict[str, Path]) -> Iterator[Case]:
    """Facts of a checkpoint that are missing, of another type or out of range."""
    for base in sorted({"language model", "classify"} & runs.keys()):
        newest = max((runs[base] / "last").iterdir())
        for path in _leaves(json.loads((newest / "facts.json").read_bytes())):
            for value in (None, -1, 10**30, "x", [1, 2], {"a": 1}):
                name = f"facts: {'.'.join(map(str, path))} is {value}"
                build = written("last/step-*/facts.json", _at(path, value))
                yield Case(name, base, build, RESUME, HARMLESS)


DEEP = {"brackets": b"[" * 10**5, "objects": b'{"a":' * 10**5, "digits": b"9" * 10**5, "bytes": b"\xff\xfe\x00"}
DEEP |= {"list": b"[]", "number": b"3", "null": b"null", "text": b'"x"', "nothing": b"", "NaN": b"NaN"}
DEEP |= {"object": b"{}", "nested list": b"[[1, [2]]]", "huge list": b"[" + b"0," * 10**6 + b"0]"}
DEEP |= {"object of code": b'{"__class__": "os.system", "__reduce__": ["id"]}'}


def side_files(runs: dict[str, Path]) -> Iterator[Case]:
    """Any JSON of a run: too deep, of another type, or empty."""
    for base, run in runs.items():
        names = [str(path.relative_to(run)) for pattern in ("*.json", "data/*.json") for path in run.glob(pattern)]
        for name in sorted(names):
            if name in ("manifest.json", "environment.json", "results.json") and base != "language model":
                continue
            for kind, content in DEEP.items():
                if base == "n-grams" or (kind in ("huge list", "nested list", "digits") and base != "language model"):
                    continue
                build = written(name, content) if name != "manifest.json" else _raw(name, content)
                use = USES[base] if name == "tokenizer.json" else EVAL
                yield Case(f"{name}: {kind}", base, build, use, HARMLESS)


ARRAYS = {"large": 2**31 - 1, "negative": -1, "NaN": float("nan")}


def _filled(name: str, value: float) -> Build:
    """Every value of an encoded array is this one, where its type has it."""

    def build(work: Path) -> None:
        path = work / "run" / name
        kind = np.dtype("<u2") if path.suffix == ".tokens" else None
        array = np.fromfile(path, kind) if kind else np.load(path)
        wanted = np.nan_to_num(value) if array.dtype.kind in "iu" else value
        array[...] = np.array(wanted).astype(array.dtype)
        if kind:
            array.tofile(path)
        else:
            np.save(path, array)
        facts = path.with_name(path.name.partition(".")[0] + ".json")
        content = json.loads(facts.read_bytes())
        content["files"][path.name] = (path.stat().st_size, sha256(path.read_bytes()).hexdigest())
        facts.write_text(json.dumps(content))
        sign(work / "run")

    return build


def arrays(runs: dict[str, Path]) -> Iterator[Case]:
    """Encoded data whose ids are in no vocabulary, with all hashes made anew."""
    for base, run in runs.items():
        for path in sorted(
            (*run.glob("data/test*.npy"), *run.glob("data/test.tokens"), *run.glob("data/valid.starts"))
        ):
            for kind, value in ARRAYS.items():
                yield Case(f"{path.name}: {kind}", base, _filled(f"data/{path.name}", value), EVAL, HARMLESS)


def _raw(name: str, content: bytes) -> Build:
    return lambda work: (work / "run" / name).write_bytes(content)


LISTED: tuple[str, ...] = (
    "../outside/secret.txt",
    "/etc/passwd",
    "../../../../etc/passwd",
    "/dev/zero",
    "data/../../../outside/secret.txt",
)
LISTED += ("PIPE", "~", "a\x00b", "x" * 5000, "", ".", "..", "/proc/self/environ")


def manifests(runs: dict[str, Path]) -> Iterator[Case]:
    """Manifests, of a run and of a checkpoint, that list files elsewhere."""

    def of_run(name: str) -> Build:
        def build(work: Path) -> None:
            path = work / "run" / "manifest.json"
            body = json.loads(path.read_bytes())["files"]
            path.write_bytes(signed({"files": {**body, name.replace("PIPE", str(outside(work) / "pipe")): ["0" * 64]}}))

        return build

    def of_checkpoint(name: str) -> Build:
        def build(work: Path) -> None:
            for path in (work / "run").glob("*/step-*/manifest.json"):
                body = json.loads(path.read_bytes())
                body.pop("sha256")
                body["files"][name.replace("PIPE", str(outside(work) / "pipe"))] = {"bytes": 3, "sha256": "0"}
                path.write_bytes(signed(body))

        return build

    for name in LISTED:
        shown = name.replace("\x00", "NUL")[:40]
        yield Case(f"the manifest lists {shown}", "language model", of_run(name), EVAL, REFUSED)
        yield Case(f"the manifest of a checkpoint lists {shown}", "language model", of_checkpoint(name), EVAL, REFUSED)


CLASSES = (facts, side_files, arrays, manifests)
