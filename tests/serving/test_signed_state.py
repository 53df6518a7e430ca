"""States as values: only what this server has signed, for this model and in time, is read."""

import json
import random
import struct
import time

import pytest
import torch
from safetensors.torch import save

from elman.errors import ConfigError
from elman.serving import signed_state
from elman.serving.generation import Snapshot
from elman.serving.signed_state import InvalidState, OtherModel, StateSigner, read_key

STATE = (torch.randn(1, 8), (torch.randn(1, 3, 2), torch.arange(4).view(1, 4)))
SNAPSHOT = Snapshot(STATE, (3,), 17, (1, 2, 3))
SIGNER = StateSigner(b"k" * 32)
DAY = 24 * 3600
DATA = SIGNER.pack(SNAPSHOT, "model", DAY)


def unpack(data, digest="model", like=STATE, signer=SIGNER):
    return signer.unpack(data, digest, like)


def header(data):
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def with_header(facts, rest):
    text = json.dumps(facts).encode()
    return struct.pack("<Q", len(text)) + text + rest


def test_a_snapshot_comes_back_bit_by_bit():
    found = unpack(DATA)
    assert found[1:] == SNAPSHOT[1:]
    assert torch.equal(found.state[0], STATE[0])
    assert torch.equal(found.state[1][1], STATE[1][1])


def test_every_changed_bit_is_refused():
    for place in range(len(DATA)):
        damaged = bytearray(DATA)
        damaged[place] ^= 1 << random.Random(place).randrange(8)
        with pytest.raises(InvalidState):
            unpack(bytes(damaged))


def test_cut_repeated_and_foreign_bytes_are_refused():
    for data in (b"", DATA[:-1], DATA + b"\0", DATA * 2, b"\xff" * 100, save({"state": torch.zeros(1)}), DATA[:50]):
        with pytest.raises(InvalidState):
            unpack(data)


def test_changes_of_the_header_are_refused():
    facts, rest = header(DATA)
    for name, value in {"expires": "9999999999", "digest": "model2", "position": "0", "mac": "", "format": "x"}.items():
        changed = {**facts, "__metadata__": facts["__metadata__"] | {name: value}}
        with pytest.raises(InvalidState):
            unpack(with_header(changed, rest), digest=changed["__metadata__"]["digest"])
    deep = struct.pack("<Q", 200_000) + b"[" * 200_000
    with pytest.raises(InvalidState, match="not a state"):
        unpack(deep)


def test_states_of_other_keys_models_and_shapes_are_refused():
    with pytest.raises(InvalidState, match="another server"):
        unpack(DATA, signer=StateSigner(b"x" * 32))
    with pytest.raises(OtherModel, match="another model"):
        unpack(DATA, digest="other")
    with pytest.raises(OtherModel, match="other parts"):
        unpack(DATA, like=(torch.zeros(1, 8),))


def test_a_state_expires(monkeypatch):
    now = time.time()
    monkeypatch.setattr(signed_state.time, "time", lambda: now + DAY + 60)
    with pytest.raises(InvalidState, match="expired"):
        unpack(DATA)


def test_the_key_is_made_once_and_is_private(tmp_path):
    path = tmp_path / "keys" / "state.key"
    key = read_key(path, None)
    assert len(key) == 32
    assert read_key(path, None) == key == read_key(None, path.parent)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_key(None, None) != read_key(None, None)
    path.write_bytes(b"short")
    with pytest.raises(ConfigError, match="32 bytes"):
        read_key(path, None)


def test_a_renewed_state_holds_longer_and_is_the_same(monkeypatch):
    renewed = SIGNER.renew(DATA, 10 * DAY)
    assert len(renewed) == len(DATA)
    now = time.time()
    monkeypatch.setattr(signed_state.time, "time", lambda: now + 5 * DAY)
    assert unpack(renewed)[1:] == SNAPSHOT[1:]
    with pytest.raises(InvalidState, match="expired"):
        unpack(DATA)
    assert SIGNER.unpack(DATA, "model", STATE, expires=False)[1:] == SNAPSHOT[1:]
    with pytest.raises(InvalidState):
        SIGNER.renew(renewed[:-1], DAY)


def test_nan_is_refused_even_if_it_is_signed():
    broken = SNAPSHOT._replace(state=(torch.full((1, 8), torch.nan), STATE[1]))
    with pytest.raises(InvalidState, match="NaN"):
        unpack(SIGNER.pack(broken, "model", DAY))


def test_parts_have_the_shapes_of_the_model():
    with pytest.raises(OtherModel, match="other parts"):
        unpack(DATA, like=(torch.zeros(1, 9), STATE[1]))
