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
from safetensors.torch import load, save

from elman.errors import ConfigError, ElmanError
from elman.ops.state import restore, tensors
from elman.serving.generation import Snapshot
from elman.shapes import State
from elman.untrusted import read_bytes

FORMAT = "elman-state-1"
EMPTY_MAC = "0" * 64
MAC_KEY = b'"mac":"'  # in the header, before the MAC
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
        return self._signed(save(parts, {**facts, "expires": expiry(seconds), "mac": EMPTY_MAC}))

    def unpack(self, data: bytes, digest: str, like: State, *, expires: bool = True) -> Snapshot:
        """The snapshot, if this key has signed it, for this model, and it has not expired where that counts."""
        facts = self._verified(data)
        if facts["digest"] != digest:
            raise OtherModel("the state is of another model or tokenizer")
        if expires and float(facts["expires"]) < time.time():
            raise InvalidState("the state has expired")
        parts = load(data)
        pending, tail = (tuple(parts.pop(name).tolist()) for name in ("pending", "tail"))
        expected = {name: (part.shape, part.dtype) for name, part in tensors(like)}
        if {name: (part.shape, part.dtype) for name, part in parts.items()} != expected:
            raise OtherModel("the state has other parts than those of the model")
        if any(part.isnan().any() for part in parts.values()):
            raise InvalidState("the state holds NaN")
        return Snapshot(restore(like, parts), pending, int(facts["position"]), tail)

    def renew(self, data: bytes, seconds: float) -> bytes:
        """The same state, which holds for so many seconds from now."""
        facts = self._verified(data)
        new = {"expires": expiry(seconds), "mac": EMPTY_MAC}  # as long as before
        for name, value in new.items():
            data = data.replace(_field(name, facts[name]), _field(name, value), 1)
        return self._signed(data)

    def _signed(self, data: bytes) -> bytes:
        return data.replace(_field("mac", EMPTY_MAC), _field("mac", self._mac(data).decode()), 1)

    def _verified(self, data: bytes) -> dict[str, str]:
        """The metadata; nothing is parsed before the MAC is found to be that of all other bytes."""
        place = data.find(MAC_KEY, 0, MAX_HEADER) + len(MAC_KEY)
        if place < len(MAC_KEY):
            raise InvalidState("not a state that elman has saved")
        end = place + len(EMPTY_MAC)
        own = self._mac(data[:place], EMPTY_MAC.encode(), memoryview(data)[end:])
        if not hmac.compare_digest(own, data[place:end]):
            raise InvalidState("the state is damaged, or another server signed it (replicas must share --state-key)")
        facts = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        if facts["format"] != FORMAT:
            raise InvalidState(f"the state has another format than {FORMAT}; make it anew")
        return facts

    def _mac(self, *parts: bytes | memoryview) -> bytes:
        code = hmac.new(self._key, digestmod=sha256)
        for part in parts:
            code.update(part)
        return code.hexdigest().encode()


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


def expiry(seconds: float) -> str:
    """Seconds since 1970 after so many more, always of the same length."""
    return f"{min(int(time.time() + seconds), 10**12 - 1):012d}"


def _field(name: str, value: str) -> bytes:
    return f'"{name}":"{value}"'.encode()
