"""What is written for one model: model.h with its step and the layout of its memory, and model.bin (blob.h)."""

import hashlib
import struct
import zlib
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from elman.compiler.cpu.step.compile import lower_step, weight_arrays
from elman.compiler.cpu.step.lowering import LoweredStep
from elman.compiler.cpu.step.program import ALIGNMENT, padded
from elman.ops.state import leaves

MAGIC = b"elman 1\n"
HEADER = "<8s3Q8Q"  # magic, layout, checksum, size, then the start and size of each section
BODY = 128  # bytes before the first section
HEAD = """// Written by elman for one model: the layout of its memory, and its step.

namespace {{

constexpr uint64_t LAYOUT = 0x{layout:016x};
constexpr int64_t OUTPUTS = {outputs};
constexpr int OUTPUT_KIND = {kind};
constexpr bool IS_LANGUAGE_MODEL = OUTPUT_KIND == ELMAN_TOKENS;
constexpr double OUTPUT_SCALE = {scale!r}, OUTPUT_MEAN = {mean!r};  // of a regressor
constexpr int64_t MOST_TOKENS = {most};  // that are read of a text
constexpr bool SEPARATED = {separated};  // whether a space stands between two tokens
constexpr int64_t SCRATCH = {scratch};
constexpr uint64_t WEIGHT_BYTES = {weight_bytes};
constexpr int64_t PLACES = {places};
constexpr int64_t WEIGHT_PLACES[] = {{{weight_places}}};
constexpr uint64_t STATE_BYTES = {state_bytes};  // the logits, then the state
constexpr int64_t PARTS_OF_STATE = {parts};
constexpr StatePart STATE[] = {{{state}}};

}}  // namespace

"""


@dataclass
class StepModel:
    """A model that steps through the tokens of a text, and what its program must know of its outputs."""

    model: Any
    kind: Literal["tokens", "one_label", "several_labels", "number"] = "tokens"
    """What the logits are of: the next token, labels (one or several of them), or a number."""
    labels: tuple[str, ...] = ()
    scale: float = 1.0
    mean: float = 0.0
    """A number is the logit times `scale` plus `mean`."""
    max_tokens: int = 0
    """How many tokens of a text are read; 0: all."""
    start: Tensor | None = None
    """Logits of a text without tokens; a language model has them after its start token."""


class Program(NamedTuple):
    header: str  # model.h
    blob: bytes  # model.bin
    quantized: bool  # whether a matrix is in int8


def standalone(given: StepModel, weights: str, text: bytes, encoding: str, separated: bool) -> Program:
    """A model's step as a program. `text` is the tokenizer's section, `encoding` the code for it: a blob for another
    one is another model. Decoded tokens may be `separated` by spaces."""
    model, start = given.model, given.start
    lowered, parameters = lower_step(model, weights)
    arrays = weight_arrays(lowered, parameters)
    state = [part.detach().contiguous() for part in leaves(model.initial_state(1))]
    logits = torch.zeros(lowered.output.numel()) if start is None else start.detach().float().flatten()
    labels = "".join(f"{name}\0" for name in given.labels).encode()
    sections = [_joined(arrays), _bytes([logits, *state]), text, labels]
    header, layout = _header(lowered, arrays, given, encoding, separated, len(sections[1]))
    return Program(
        header, _blob(layout, sections), any(weight.format in ("int8", "rows") for weight in lowered.weights)
    )


def _header(
    lowered: LoweredStep, arrays: list[Tensor], given: StepModel, encoding: str, separated: bool, state_bytes: int
) -> tuple[str, int]:
    places = [0]
    for array in arrays:
        places.append(places[-1] + padded(array.nbytes))
    facts: dict[str, Any] = {
        "outputs": lowered.output.numel(),
        "kind": f"ELMAN_{given.kind.upper()}",
        "scale": given.scale,
        "mean": given.mean,
        "most": given.max_tokens or 2**62,
        "separated": str(separated).lower(),
        "scratch": lowered.scratch,
        "weight_bytes": places[-1],
        "places": len(arrays),
        "weight_places": ", ".join(map(str, places[:-1] or [0])),
        "state_bytes": state_bytes,
        "parts": len(lowered.state),
        "state": ", ".join(_part(lowered, number) for number in range(len(lowered.state))) or "{}",
    }
    code = HEAD.format(layout=0, **facts) + lowered.source + encoding
    number = int.from_bytes(hashlib.sha256(code.encode()).digest()[:8], "little")
    return HEAD.format(layout=number, **facts) + lowered.source, number


def _part(lowered: LoweredStep, number: int) -> str:
    """A part of the state as a StatePart of state.h."""
    part, window = lowered.state[number], lowered.windows.get(number)
    if window is None:
        return f"{{{part.nbytes}, 0, 0, 0, 0}}"
    outer, inner = (
        torch.Size(sizes).numel() for sizes in (window.shape[: window.axis], window.shape[window.axis + 1 :])
    )
    total, length = window.shape[window.axis], window.length
    return f"{{{part.nbytes}, {outer}, {total}, {length}, {inner * part.dtype.itemsize}}}"


def _joined(arrays: list[Tensor]) -> bytes:
    return b"".join(_bytes([array]).ljust(padded(array.nbytes), b"\0") for array in arrays)


def _bytes(parts: list[Tensor]) -> bytes:
    return b"".join(part.contiguous().view(-1).view(torch.uint8).numpy().tobytes() for part in parts)


def _blob(layout: int, sections: list[bytes]) -> bytes:
    places, body = [], b""
    for section in sections:
        places += [BODY + len(body), len(section)]
        body += section.ljust(-(-len(section) // ALIGNMENT) * ALIGNMENT, b"\0")
    header = struct.pack(HEADER, MAGIC, layout, zlib.crc32(body), BODY + len(body), *places)
    return header.ljust(BODY, b"\0") + body
