"""Snapshots as bytes: a safetensors file whose metadata say which model they are of, until when they hold, and an HMAC.

metadata   format, digest of model and tokenizer, position, expires (seconds since 1970), mac
tensors    state, state.0, …  pending  tail
"""

import hmac
import json
import os
import secrets
import time
from hashlib import sha256
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from elman.errors import ConfigError, ElmanError
from elman.ops.state import restore, tensors
from elman.serving.generation import Snapshot
from elman.shapes import State
from elman.untrusted import read_bytes

FORMAT = "elman-state-1"
EMPTY_MAC = "0" * 64
KEY_BYTES = 32
MAX_HEADER = 2**20  # bytes


class InvalidState(ElmanError):
    """A state that this server has not signed, or that has expired."""


class OtherModel(InvalidState):
    """A state of another model."""


class StateSigner:
    """Packs and unpacks with one key; servers that share it accept each other's states."""

    def __init__(self, key: bytes):
        assert len(key) >= KEY_BYTES, "a key has 256 bits"
        self._key = key

    def pack(self, snapshot: Snapshot, digest: str, seconds: float) -> bytes:
        """A snapshot as signed bytes that hold for so many seconds."""
        parts = {name: part.detach().cpu().contiguous().clone() for name, part in tensors(snapshot.state)}
        parts |= {"pending": torch.tensor(snapshot.pending, dtype=torch.int64)}
        parts |= {"tail": torch.tensor(snapshot.tail, dtype=torch.int64)}
        facts = {"format": FORMAT, "digest": digest, "position": str(snapshot.position)}
        data = save(parts, {**facts, "expires": str(int(time.time() + seconds)), "mac": EMPTY_MAC})
        return data.replace(_field(EMPTY_MAC), _field(self._mac(data)), 1)

    def unpack(self, data: bytes, digest: str, like: State) -> Snapshot:
        """The snapshot, if this key has signed it, for this model, and it has not expired."""
        facts = _metadata(data)
        mac = str(facts.get("mac", ""))
        unsigned = data.replace(_field(mac), _field(EMPTY_MAC), 1)
        if len(mac) != len(EMPTY_MAC) or not hmac.compare_digest(self._mac(unsigned), mac.encode("utf-8", "replace")):
            raise InvalidState("the state is damaged, or another server signed it (replicas must share --state-key)")
        if facts["digest"] != digest:
            raise OtherModel("the state is of another model or tokenizer")
        if float(facts["expires"]) < time.time():
            raise InvalidState("the state has expired")
        parts = load(data)
        pending, tail = (tuple(parts.pop(name).tolist()) for name in ("pending", "tail"))
        expected = {name: (part.dim(), part.dtype) for name, part in tensors(like)}
        if {name: (part.dim(), part.dtype) for name, part in parts.items()} != expected:
            raise OtherModel("the state has other parts than those of the model")
        return Snapshot(restore(like, parts), pending, int(facts["position"]), tail)

    def _mac(self, data: bytes) -> bytes:
        return hmac.new(self._key, data, sha256).hexdigest().encode()


def read_key(path: Path | None, folder: Path | None) -> bytes:
    """The key of a file, made with a new one if there is none; without a file a new key."""
    path = path or (folder / "state.key" if folder else None)
    if path is None:
        return secrets.token_bytes(KEY_BYTES)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = read_bytes(path, 1000)
        if len(key) < KEY_BYTES:
            raise ConfigError(f"{path}: a key has {KEY_BYTES} bytes or more, but this one has {len(key)}") from None
        return key
    with open(made, "wb") as file:
        file.write(key := secrets.token_bytes(KEY_BYTES))
        os.fsync(file.fileno())
    return key


def _metadata(data: bytes) -> dict[str, str]:
    size = int.from_bytes(data[:8], "little")
    try:
        if size > min(len(data) - 8, MAX_HEADER):
            raise ValueError
        header = json.loads(data[8 : 8 + size])
        facts = header["__metadata__"]
        if facts["format"] != FORMAT:
            raise ValueError
        return dict(facts)
    except (ValueError, KeyError, TypeError, RecursionError, SafetensorError):
        raise InvalidState("not a state that elman has saved") from None


def _field(mac: str | bytes) -> bytes:
    return b'"mac":"' + (mac.encode("utf-8", "replace") if isinstance(mac, str) else mac) + b'"'
