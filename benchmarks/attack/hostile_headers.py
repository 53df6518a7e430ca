"""Files of tensors as an attacker would write them: lengths, offsets, shapes, types and nesting that do not fit."""

import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import safetensors.numpy
import torch

Header = dict[str, Any]


class Payload:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return (exec, ("import os; open(os.environ['ELMAN_CANARY'], 'w').write('code ran')",))


def packed(header: Header | bytes, body: bytes, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little", signed=False) + text + body


def _unpacked(data: bytes) -> tuple[Header, bytes]:
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def _changed(change: Callable[[Header, str, bytes], Any]) -> Callable[[bytes], bytes]:
    """The file with a change to the header, whose second argument is the name of its largest tensor."""

    def apply(data: bytes) -> bytes:
        header, body = _unpacked(data)
        header.pop("__metadata__", None)
        name = max(header, key=lambda one: header[one]["data_offsets"][1] - header[one]["data_offsets"][0])
        found = change(header, name, body)
        return packed(header, found if isinstance(found, bytes) else body)

    return apply


def _entry(**fields: Any) -> Callable[[bytes], bytes]:
    return _changed(lambda header, name, _: header[name].update(fields))


def _values(change: Callable[[dict[str, Any], str], Any]) -> Callable[[bytes], bytes]:
    """A well-formed file of other tensors."""

    def apply(data: bytes) -> bytes:
        tensors = {name: value.copy() for name, value in safetensors.numpy.load(data).items()}
        change(tensors, max(tensors, key=lambda one: tensors[one].nbytes))
        return safetensors.numpy.save(tensors)

    return apply


def _fill(value: float) -> Callable[[bytes], bytes]:
    def change(tensors: dict[str, Any], _: str) -> None:
        for name, one in tensors.items():
            if one.dtype.kind == "f":
                tensors[name] = np.full_like(one, value)

    return _values(change)


def _torch_zip(data: bytes) -> bytes:
    from io import BytesIO

    file = BytesIO()
    torch.save({"weight": Payload()}, file)
    return file.getvalue()


def _overlap(header: Header, name: str, _: bytes) -> None:
    sizes = {one: entry["data_offsets"][1] - entry["data_offsets"][0] for one, entry in header.items()}
    other = next(one for one in header if one != name and sizes[one])
    begin = header[name]["data_offsets"][0]
    header[other]["data_offsets"] = [begin, begin + sizes[other]]


def _hole(header: Header, name: str, body: bytes) -> bytes:
    for entry in header.values():
        entry["data_offsets"] = [place + 64 for place in entry["data_offsets"]]
    return bytes(64) + body


def _many(header: Header, name: str, _: bytes) -> None:
    end = max(entry["data_offsets"][1] for entry in header.values())
    header.update(
        {f"none.{number}": {"dtype": "F32", "shape": [0], "data_offsets": [end, end]} for number in range(100_000)}
    )


ATTACKS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "seven bytes": lambda data: data[:7],
    "header of 2^63 - 1 bytes": lambda data: packed(data[8:], b"", 2**63 - 1),
    "header of 2^64 - 1 bytes": lambda data: packed(data[8:], b"", 2**64 - 1),
    "header longer than the file": lambda data: packed(data[8:], b"", len(data) + 1),
    "header of 100 MB + 1": lambda data: packed(b"{" + b" " * 100_000_001 + b"}", b""),
    "header of no bytes": lambda data: packed(b"", data),
    "header that is no JSON": lambda data: packed(b"\xff\xfe{", data),
    "header that is a list": lambda data: packed(b"[]", data),
    "header of 100,000 brackets": lambda data: packed(b'{"a":' * 100_000, b""),
    "header with a name twice": lambda data: packed(
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}}',
        bytes(4),
    ),
    "metadata that is deep": _changed(lambda header, *_: header.update({"__metadata__": {"a": [[[{}]]]}})),
    "metadata that is a number": _changed(lambda header, *_: header.update({"__metadata__": 3})),
    "offsets that overlap": _changed(_overlap),
    "offsets with a hole": _changed(_hole),
    "offsets beyond the end": _entry(data_offsets=[0, 2**40]),
    "offsets of 2^64": _entry(data_offsets=[0, 2**64 - 1]),
    "offsets that fall": _entry(data_offsets=[8, 0]),
    "negative offsets": _entry(data_offsets=[-8, 0]),
    "offsets that are fractions": _entry(data_offsets=[0.5, 4.5]),
    "one offset": _entry(data_offsets=[0]),
    "three offsets": _entry(data_offsets=[0, 4, 8]),
    "shape whose product overflows": _entry(shape=[2**33, 2**33]),
    "shape of 2^62": _entry(shape=[2**62]),
    "negative shape": _entry(shape=[-1, -1]),
    "shape of text": _entry(shape=["a"]),
    "shape of no elements": _entry(shape=[0]),
    "shape of 1,000 dimensions": _entry(shape=[1] * 1000),
    "unknown type": _entry(dtype="OBJECT"),
    "type of other size": _entry(dtype="F64"),
    "integers for numbers": _entry(dtype="I32"),
    "half of a byte": _entry(dtype="F4"),
    "no type": _changed(lambda header, name, _: header[name].pop("dtype")),
    "no tensors": _changed(lambda header, *_: (header.clear(), b"")[1]),
    "a missing tensor": _values(lambda tensors, name: tensors.pop(name)),
    "a tensor too many": _values(lambda tensors, name: tensors.update({"__class__": tensors[name]})),
    "a renamed tensor": _values(lambda tensors, name: tensors.update({"../../x": tensors.pop(name)})),
    "another shape": _values(lambda tensors, name: tensors.update({name: tensors[name][..., :-1].copy()})),
    "a scalar": _values(lambda tensors, name: tensors.update({name: np.array(1.0, np.float32)})),
    "100,000 empty tensors": _changed(_many),
    "bytes after the end": lambda data: data + bytes(8),
    "cut in the middle": lambda data: data[: len(data) // 2],
    "a pickle": lambda _: pickle.dumps(Payload()),
    "a zip of torch": _torch_zip,
    "NaN": _fill(float("nan")),
    "infinity": _fill(float("inf")),
}
