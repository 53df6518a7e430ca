"""Hold the tokenizers of exported C libraries to those of the `tokenizers` library: random texts, all code points, and
decoding of random tokens.

    python -m benchmarks.exported_tokenizers --texts 1000000

Texts mix scripts, marks, capitals, spaces of all kinds, what looks like special tokens, and bytes that are not UTF-8.
Every difference is printed; a record goes to benchmarks/results.
"""

import argparse
import ctypes
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reporting import RESULTS, write
from elman.compiler.cpu.standalone import sources
from elman.export.tokenizer import encoder, section
from elman.tokenizers import StreamDecoder, Tokenizer, train_tokenizer

WORDS = (
    "the cat sat on a mat it's we'll DON'T don't isn't İstanbul ΣΊΣΥΦΟΣ Élan naïve Straße ﬁne 日本語 가각힣 co-op 3.14"
)
LINES = [
    WORDS,
    "The Cat! 12 cats, 345 mats? (Yes.) «Non» – it's 5€…",
    "e\u0301 E\u0301 각 \u1100\u1161 👍🏽 a\u0323\u0307",
]
SCHEMES: dict[str, dict[str, Any]] = {
    "byte": {"type": "byte"},
    "bpe": {"type": "bpe", "vocab_size": 380},
    "character": {"type": "character"},
    "character-nfc": {"type": "character", "normalize": "nfc"},
    "character-nfd": {"type": "character", "normalize": "nfd"},
    "word": {"type": "word"},
    "word-lower": {"type": "word", "lowercase": True},
    "word-punctuation": {"type": "word", "split": "punctuation"},
    "word-lower-punctuation": {"type": "word", "lowercase": True, "split": "punctuation"},
}
POOLS = (
    "abcdefghij klmnop", "'strevmlld' \n\t", "ÀÁÂçéèñ\u0301\u0300\u0327", "가각힣ㄱㅏ\u1100\u1161\u11a8\u11a7\u1176",
    "<unk><eos>", "<UNK><EOS> \u212a", "1234567890", ".,;:!?()-", "a\u0345\u0334\u0591\u05b0\u0323\u0307", "ΣςΑΆİIıſ",
    "日本語カナ\u3099", "\x00\x01\x1c\x1d\x85\xa0\u2028\u3000\u200b", "👍🏽👩\u200d👧",
    "\u09c7\u09be\u0b47\u0b57\U00011131\U00011127",
)  # fmt: skip
SOURCE = """
#include "elman.h"
#include <algorithm>
#include <cstring>
#include <iterator>
constexpr bool SEPARATED = {separated};
#include "utf8.h"
#include "unicode.h"
#include "text.h"
#include "encode.h"
#include "writer.h"

static Workspace work;

// Texts from offsets[n] to offsets[n + 1]; the tokens one after another, and where those of each text end.
extern "C" int64_t encode_texts(
    const uint8_t* section, int64_t size, const uint8_t* texts, const int64_t* offsets, int64_t count, int32_t* tokens,
    int64_t* ends) {{
    Text text;
    if (!text.read({{section, section + size}})) return -1;
    int64_t found = 0;
    for (int64_t n = 0; n < count; ++n) {{
        const int code = encode(text, work, texts + offsets[n], texts + offsets[n + 1], [&](int64_t token) {{
            tokens[found++] = (int32_t)token;
            return 0;
        }});
        if (code) return -code;
        ends[n] = found;
    }}
    return found;
}}

// The text of these tokens.
extern "C" int64_t decode_tokens(
    const uint8_t* section, int64_t size, const int32_t* tokens, int64_t count, char* to) {{
    static char buffer[1 << 16];
    const elman_settings settings = {{}};
    Text text;
    if (!text.read({{section, section + size}}) || Writer::room_for(text) > (int64_t)sizeof(buffer)) return -1;
    Writer writer(text, settings, buffer);
    char* out = to;
    const auto write = [&](int64_t shown) {{
        std::memcpy(out, buffer, (size_t)shown);
        out += shown;
    }};
    for (int64_t n = 0; n < count; ++n) write(writer.push(tokens[n]));
    write(writer.close());
    return out - to;
}}
"""


class Compiled:
    """A tokenizer in C++, for many texts at once."""

    def __init__(self, tokenizer: Tokenizer, *flags: str):
        own, data = encoder(tokenizer), section(tokenizer)
        self.longest = max(map(len, tokenizer.spellings))
        with tempfile.TemporaryDirectory() as aside:
            for name, text in {**sources(own.parts), "unicode.h": own.unicode}.items():
                Path(aside, name).parent.mkdir(exist_ok=True)
                Path(aside, name).write_text(text)
            separated = str(bool(tokenizer.separator)).lower()
            Path(aside, "tokens.cpp").write_text(SOURCE.format(separated=separated))
            warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
            command = [
                "c++",
                "-std=c++17",
                *(flags or ["-O2"]),
                *warnings,
                "-shared",
                "-fPIC",
                "tokens.cpp",
                "-o",
                "tokens.so",
            ]
            subprocess.run(command, cwd=aside, check=True)
            self.own = ctypes.CDLL(str(Path(aside, "tokens.so")))
        for name in ("encode_texts", "decode_tokens"):
            self.own[name].restype = ctypes.c_int64
        self.section = np.frombuffer(data.ljust(len(data) + 8, b"\0"), np.uint64), len(data)

    def encode(self, texts: Sequence[bytes]) -> list[list[int]]:
        offsets = np.cumsum([0, *map(len, texts)])
        tokens, ends = np.empty(4 * offsets[-1] + 8, np.int32), np.empty(len(texts), np.int64)
        joined = np.frombuffer(b"".join(texts) + b"\0", np.uint8)
        found = self._call("encode_texts", joined, offsets, len(texts), tokens, ends)
        if found < 0:
            raise ValueError(f"the C++ tokenizer ended with {-found}")
        return [part.tolist() for part in np.split(tokens[:found], ends[:-1])]

    def decode(self, tokens: Sequence[int]) -> str:
        to = np.empty(3 * (self.longest + 2) * len(tokens) + 8, np.uint8)
        size = self._call("decode_tokens", np.array(tokens, np.int32), len(tokens), to)
        assert size >= 0
        return to[:size].tobytes().decode()

    def _call(self, name: str, *arguments: Any) -> int:
        given = [self.section[0], self.section[1], *arguments]
        pointers = [one.ctypes.data if isinstance(one, np.ndarray) else one for one in given]
        return self.own[name](*(ctypes.c_void_p(n) if isinstance(g, np.ndarray) else ctypes.c_int64(n)
                                for n, g in zip(pointers, given, strict=True)))  # fmt: skip


def random_text(dice: random.Random) -> bytes:
    """UTF-8, one in five with wrong bytes."""
    parts = []
    for _ in range(dice.randint(0, 12)):
        kind = dice.random()
        if kind < 0.15:
            start, end = dice.choice([(0, 0x3000), (0, 0xD800), (0xE000, 0x110000)])
            parts.append(chr(dice.randrange(start, end)))
        elif kind < 0.2:
            parts.append(dice.choice(["<unk>", "<eos>", " <eos> ", "'s", "'ll", " '", "  "]))
        elif kind < 0.4:
            parts.append(dice.choice(WORDS.split()))
        else:
            parts.append("".join(dice.choices(dice.choice(POOLS), k=dice.randint(1, 6))))
        if dice.random() < 0.4:
            parts.append(dice.choice([" ", "  ", "\n", "\t "]))
    data = bytearray("".join(parts).encode())
    if data and dice.random() < 0.2:
        for _ in range(dice.randint(1, 3)):
            data[dice.randrange(len(data))] = dice.randrange(256)
    return bytes(data)


def all_characters() -> list[bytes]:
    """Each alone between two letters, and after a mark."""
    points = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    return [f"a{point}b e\u0323{point}".encode() for point in points]


def trained(scheme: str) -> Tokenizer:
    return train_tokenizer(SCHEMES[scheme], LINES * 3)


def differences(tokenizer: Tokenizer, compiled: Compiled, texts: Sequence[bytes]) -> Iterator[str]:
    """Texts whose tokens are others, each with both."""
    right = tokenizer.encode_batch([text.decode("utf-8", "replace") for text in texts])
    for text, expected, found in zip(texts, right, compiled.encode(texts), strict=True):
        if expected.tolist() != found:
            yield f"{text!r}: {found}, not {expected.tolist()}"


def decoding_differences(tokenizer: Tokenizer, compiled: Compiled, count: int, dice: random.Random) -> Iterator[str]:
    """Random tokens whose text is another, at once or token by token."""
    for _ in range(count):
        ids = dice.choices(range(tokenizer.vocab_size), k=dice.randint(0, 20))
        stream = StreamDecoder(tokenizer)
        pieces = "".join(stream.push(id) for id in ids) + stream.flush()
        found = compiled.decode(ids)
        if not tokenizer.decode(ids) == pieces == found:
            yield f"tokens {ids}: {found!r}, not {tokenizer.decode(ids)!r}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--schemes", nargs="*", default=[*SCHEMES])
    options = parser.parse_args()
    results: dict[str, Any] = {"seed": options.seed}
    for scheme in options.schemes:
        dice, tokenizer = random.Random(options.seed), trained(scheme)
        compiled, wrong = Compiled(tokenizer), 0
        batches = ([random_text(dice) for _ in range(10_000)] for _ in range(-(-options.texts // 10_000)))
        for texts in chain(batches, [all_characters()]):
            for difference in differences(tokenizer, compiled, texts):
                wrong += 1
                print(f"{scheme}: {difference}")
        decoded = options.texts // 10
        wrong += sum(1 for one in decoding_differences(tokenizer, compiled, decoded, dice) if print(one) is None)
        results[scheme] = {"texts": options.texts, "code points": 0x110000 - 0x800, "decoded": decoded, "wrong": wrong}
        print(f"{scheme}: {results[scheme]}", flush=True)
    path = write("exported-tokenizers", {**_earlier(options.seed), **results})
    print(path)
    return any(results[scheme]["wrong"] for scheme in options.schemes)


def _earlier(seed: int) -> dict[str, Any]:
    """Results of other schemes with the same seed, of today."""
    path = RESULTS / f"{date.today().isoformat()}-exported-tokenizers-cpu.json"
    found = json.loads(path.read_text())["results"] if path.exists() else {}
    return found if found.get("seed") == seed else {}


if __name__ == "__main__":
    sys.exit(main())
