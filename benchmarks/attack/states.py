"""Give a server states that it did not sign, or that no longer hold: all are refused, and none is parsed.

    python -m benchmarks.attack.states --count 20000

A changed, cut or repeated byte; other metadata; a header of any size or depth; a MAC that is swapped, moved, repeated
or of another key; tricks of base64; states of other models, and states that have expired. With the server's own key
also what only a replica could have signed: NaN, other shapes and types, missing and additional parts. Each goes
through one of three doors: the body of `POST /v1/sessions` as bytes, the field `state` there, and that of
`/v1/completions`. A violation is an answer that is not an error of the 400s in the usual form, a body that names a
path, and any parser that sees a state before its MAC was found to be right.
"""

import base64
import json
import random
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from safetensors.torch import load, save

from benchmarks.attack.campaign import Campaign, parser
from benchmarks.attack.in_process import BEARER, Client, wrong_refusal
from benchmarks.attack.small_runs import runs_in
from elman.serving import signed_state
from elman.serving.signed_state import EMPTY_MAC, StateSigner, expiry

MODELS = ["language-model", "lstm", "n-gram", "attention", "words", "hybrid"]
BYTES = {**BEARER, "Content-Type": "application/octet-stream"}
JSON = {**BEARER, "Content-Type": "application/json"}
Dice = random.Random


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and the tensors."""
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def joined(header: Any, rest: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + rest


# Without the key


def changed_byte(data: bytes, dice: Dice) -> bytes:
    found = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 20))):
        found[dice.randrange(min(len(found), dice.choice((700, len(found)))))] ^= 1 << dice.randrange(8)
    return bytes(found)


def cut(data: bytes, dice: Dice) -> bytes:
    start, end = sorted(dice.randrange(len(data) + 1) for _ in range(2))
    return dice.choice((data[:end], data[start:], data[:start] + data[end:] if start < end else b""))


def grown(data: bytes, dice: Dice) -> bytes:
    more = dice.randbytes(dice.choice((1, 8, 1000)))
    place = dice.randrange(len(data) + 1)
    return dice.choice((data + more, more + data, data[:place] + more + data[place:], data * 2))


def random_bytes(data: bytes, dice: Dice) -> bytes:
    return dice.choice((b"", dice.randbytes(dice.randrange(2000)), data[:8] + dice.randbytes(len(data) - 8)))


METADATA: dict[str, Callable[[Dice], Any]] = {
    "expires": lambda dice: dice.choice((expiry(10**6), "inf", "nan", "-1", "9" * 400, "", 1, None, "1e999")),
    "digest": lambda dice: dice.choice(("0" * 64, "", 7, None, ["x"])),
    "position": lambda dice: dice.choice(("0", "-1", "9" * 5000, "x", "", 3, None)),
    "mac": lambda dice: dice.choice((EMPTY_MAC, "f" * 64, "", "é" * 64, "\ud800", "0" * 10**5, 0, None, {"a": 1})),
    "format": lambda dice: dice.choice(("elman-state-0", "", None, 1)),
}


def other_metadata(data: bytes, dice: Dice) -> bytes:
    header, rest = split(data)
    facts = header["__metadata__"]
    name = dice.choice([*METADATA])
    if dice.random() < 0.2:
        del facts[name]
    else:
        facts[name] = METADATA[name](dice)
    return joined(header, rest)


def other_tensors(data: bytes, dice: Dice) -> bytes:
    """Names, types, shapes and places of tensors."""
    header, rest = split(data)
    name = dice.choice([one for one in header if one != "__metadata__"])
    part = header[name]
    match dice.randrange(6):
        case 0:
            part["shape"] = dice.choice(([10**12], [-1], [0], [2**63], part["shape"] * 2, [1] * 10**4, "x"))
        case 1:
            part["dtype"] = dice.choice(("F64", "I8", "BOOL", "pickle", "", None))
        case 2:
            part["data_offsets"] = dice.choice(([0, 2**62], [8, 0], [-8, 8], [0], [0, 0], "x"))
        case 3:
            header["../../etc/passwd"] = header.pop(name)
        case 4:
            del header[name]
        case 5:
            header["another"] = part
    return joined(header, rest)


def large_header(data: bytes, dice: Dice) -> bytes:
    _, rest = split(data)
    size = dice.choice((2**64 - 1, 2**63, 2**32, 10**8 + 1, len(data), len(data) - 7, 0))
    deep = b"[" * dice.choice((1000, 200_000)) if dice.random() < 0.5 else b'{"a":' * 100_000
    return dice.choice((struct.pack("<Q", size) + data[8:], joined(deep, rest), joined(b'{"mac":"' * 10_000, rest)))


def moved_mac(data: bytes, dice: Dice) -> bytes:
    """The MAC of another place, repeated, as a name, or before the header."""
    header, rest = split(data)
    mac = header["__metadata__"]["mac"]
    field = b'"mac":"' + mac.encode() + b'"'
    match dice.randrange(4):
        case 0:
            return joined({"mac": mac, **header}, rest)
        case 1:
            return data.replace(field, field + b"," + field, 1)
        case 2:
            return field + data
        case _:
            return data.replace(mac.encode(), mac.upper().encode() if dice.random() < 0.5 else b" " + mac[1:].encode())


def other_key(data: bytes, dice: Dice) -> bytes:
    """Signed well, with a key of the attacker's."""
    header, rest = split(data)
    header["__metadata__"] |= {"mac": EMPTY_MAC, "expires": expiry(3600)}
    return StateSigner(dice.randbytes(32))._signed(joined(header, rest))


FORGED = {
    "a changed byte": changed_byte,
    "cut": cut,
    "grown": grown,
    "random bytes": random_bytes,
    "other metadata": other_metadata,
    "other tensors": other_tensors,
    "a large or deep header": large_header,
    "a moved MAC": moved_mac,
    "another key": other_key,
}


# With the key: what a replica could have signed


def signed_again(signer: StateSigner, data: bytes, change: Callable[[dict[str, Any], dict[str, str]], Any]) -> bytes:
    """The same state, changed in its parts or facts and signed by the server's own key."""
    parts, facts = load(data), dict(split(data)[0]["__metadata__"])
    change(parts, facts)
    return signer._signed(save(parts, {**facts, "mac": EMPTY_MAC}))


def odd_parts(parts: dict[str, Any], facts: dict[str, str], dice: Dice) -> None:
    names = [name for name in parts if name.startswith("state") and parts[name].numel()]
    name = dice.choice(names)
    part = parts[name]
    changes: list[Callable[[], Any]] = [
        lambda: parts.update({name: torch.cat([part, part])}),
        lambda: parts.update({name: part[..., :-1].contiguous()}),
        lambda: parts.update({name: part.unsqueeze(0)}),
        lambda: parts.update({name: part.to(torch.float16)}),
        lambda: parts.update({name: torch.zeros(part.shape, dtype=torch.bool)}),
        lambda: parts.pop(name),
        lambda: parts.update({f"{name}.0": torch.zeros(1)}),
        lambda: facts.update(digest="0" * 64),
        lambda: facts.update(format="elman-state-2"),
        lambda: facts.update(expires=expiry(-dice.randrange(1, 10**6))),
    ]
    if part.dtype.is_floating_point:
        changes.append(lambda: parts.update({name: torch.full_like(part, torch.nan)}))
    dice.choice(changes)()


class Target:
    """A server with a state of each of its models."""

    def __init__(self, runs: Sequence[Path]):
        self.client = Client(runs)
        self.signer: StateSigner = self.client.app.state.signer
        self.states = {run.name: self.state_of(run.name) for run in runs}

    def state_of(self, model: str) -> bytes:
        id = self.client.post("/v1/sessions", {"model": model, "prompt": "the cat"}).json()["id"]
        return self.client.get(f"/v1/sessions/{id}/state").content

    def give(self, model: str, data: bytes, door: int, text: str | None = None) -> list[str]:
        """What is wrong with the answer to a state; `text` stands for its base64."""
        text = base64.b64encode(data).decode() if text is None else text
        if door == 0:
            found = self.client.ask("POST", f"/v1/sessions?model={model}", BYTES, content=data)
        elif door == 1:
            found = self.client.post("/v1/sessions", {"model": model, "state": text})
        else:
            body = {"model": model, "state": text, "prompt": "", "max_tokens": 2}
            found = self.client.post("/v1/completions", body)
        return wrong_refusal(found.status_code, found.content, found.headers["content-type"])


@contextmanager
def unparsed() -> Iterator[list[str]]:
    """Notes what the module of states parses in the block."""
    seen: list[str] = []

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **more: Any) -> Any:
            seen.append(name)
            return function(*arguments, **more)

        return called

    reader = mock.Mock(loads=noting("json.loads", json.loads))
    tensors = noting("safetensors", load)
    with mock.patch.object(signed_state, "json", reader), mock.patch.object(signed_state, "load", tensors):
        yield seen


def tricks(text: str, dice: Dice) -> str:
    """Other spellings in base64 of a state that is right."""
    body = text.rstrip("=")
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    hidden = body[:-1] + last[last.index(body[-1]) ^ 1] + "=" * (len(text) - len(body))
    places = dice.randrange(1, len(text))
    options = [text + "=", text + "====", text[:places] + dice.choice("\n \t-_é\0=") + text[places:], hidden]
    options += [text.replace("+", "-").replace("/", "_") + "-", text[:-1], " " + text, f"data:;base64,{text}"]
    return dice.choice(options)


def attack(target: Target, number: int, seed: int) -> tuple[str, list[str]]:
    """The kind of a case, by its number, and what went wrong."""
    dice = Dice(f"{seed} {number}")
    kinds = [*FORGED, "base64", "another model", "signed with the key"]
    models = [*target.states]
    kind, model = kinds[number % len(kinds)], dice.choice(models)
    data, door = target.states[model], dice.randrange(3)
    if kind in FORGED:
        forged = FORGED[kind](data, dice)
        if forged == data:
            forged += b"\0"
        with unparsed() as seen:
            wrong = target.give(model, forged, door)
        return kind, wrong + [f"{name} was called" for name in set(seen)]
    if kind == "base64":
        return kind, target.give(model, b"", 1 + door % 2, tricks(base64.b64encode(data).decode(), dice))
    if kind == "another model":
        return kind, target.give(dice.choice([one for one in models if one != model]), data, door)
    odd = signed_again(target.signer, data, lambda parts, facts: odd_parts(parts, facts, dice))
    return kind, target.give(model, odd, 2)


def main() -> None:
    campaign = Campaign(parser("states", __doc__, 20_000).parse_args())
    with tempfile.TemporaryDirectory() as place:
        target = Target(runs_in(Path(place), MODELS))
        for number in campaign.numbers():
            kind, wrong = attack(target, number, campaign.seed)
            campaign.tally(kind, *(f"case {number}: {one}" for one in wrong))
        good = [model for model in MODELS if target.give(model, target.states[model], 0) == []]
        campaign.report("afterwards", *(f"{model} refuses its own state" for model in good))
        target.client.close()
    campaign.end()


if __name__ == "__main__":
    main()
