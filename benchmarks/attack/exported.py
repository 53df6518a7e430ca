"""Mutate model.bin, states and texts of exported C libraries, under AddressSanitizer and UndefinedBehaviorSanitizer.

    python -m benchmarks.attack.exported

A case is five hundred mutations. Most get a right checksum and size, since nothing behind them would be tried else.
Whatever loads is used: it encodes wrong UTF-8, generates, classifies, saves and restores states. An access outside of
an array, an undefined operation, a leak and an endless loop are violations.
"""

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks.attack.campaign import Campaign, parser
from elman.compiler.cpu.standalone import StepModel
from elman.export.c import library_files
from elman.models import Classifier, ClassifierConfig, LanguageModel, NGram, StackConfig
from elman.models.reader_step import ReaderStep
from elman.tokenizers import Tokenizer, train_tokenizer

EACH = 500  # mutations of a case
LINES = ["the cat sat on a mat", "The Cat! 12 cats, 345 mats? it's 5€…", "e\u0301 E\u0301 각 日本語"] * 3
FLAGS = "-std=c++17 -O1 -g -march=native -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
HARNESS = r"""

static uint64_t dice;
static uint64_t roll(uint64_t below) {
    dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
    return dice % below;
}

static void mutate(uint8_t* data, uint64_t size) {
    static const uint64_t numbers[] = {0, 1, 255, 0x7fffffff, 0x80000000, 0xffffffff, 1ull << 62, 1ull << 63, ~0ull};
    for (uint64_t times = 1 + roll(4); times; --times) {
        const uint64_t place = roll(size);
        if (roll(2)) data[place] = (uint8_t)roll(256);
        else if (size >= 8) std::memcpy(data + place / 8 * 8 % (size - 7), &numbers[roll(std::size(numbers))], 8);
    }
}

static int ignore(void*, int32_t, double, const char*, size_t) { return 0; }

static void use(elman* model) {
    char text[80];
    int32_t tokens[400];
    size_t count;
    for (char& letter : text) letter = (char)(roll(2) ? roll(256) : ' ' + roll(80));
    if (!elman_encode(model, text, sizeof(text), tokens, 400, &count)) {
        char back[8000];
        size_t bytes;
        elman_decode(model, tokens, count, back, sizeof(back), &bytes);
    }
    elman_settings settings = elman_defaults();
    settings.seed = dice, settings.max_tokens = 12, settings.stop_at_end = 0;
    settings.top_k = (int32_t)roll(5), settings.top_p = roll(2) ? 1 : 0.5;
    const char* const stop[] = {"a", "\xc3\xa9"};
    settings.stop = stop, settings.stops = (int32_t)roll(3);
    elman_generate(model, text, roll(80), &settings, ignore, nullptr);
    float results[OUTPUTS];
    elman_classify(model, text, roll(80), results);
    uint8_t state[STATE_HEADER + STATE_BYTES];
    elman_state_save(model, state, sizeof(state));
    mutate(state + STATE_HEADER, STATE_BYTES);
    const uint64_t sum = checksum_of(state + STATE_HEADER, STATE_BYTES);
    std::memcpy(state + 16, &sum, 8);
    if (!elman_state_load(model, state, sizeof(state))) elman_generate(model, nullptr, 0, &settings, ignore, nullptr);
    elman* copy;
    if (!elman_clone(model, &copy)) elman_free(copy);
}

int main(int, char** words) {
    void* memory;
    uint8_t* blob;
    uint64_t size, codes[16] = {};
    if (read_file("model.bin", memory, blob, size)) return 2;
    const long count = std::atol(words[1]);
    for (long n = 0; n < count; ++n) {
        dice = 0x9e3779b97f4a7c15ull * (uint64_t)(n + 1 + std::atol(words[2]));
        Header header;
        std::memcpy(&header, blob, sizeof(header));
        uint64_t length = roll(8) ? size : roll(size);
        uint8_t* const data = (uint8_t*)std::malloc(length ? length : 1);
        std::memcpy(data, blob, length);
        const uint64_t kind = roll(4);
        if (length > BODY && kind == 0) mutate(data + 16, 80);
        else if (const uint64_t text = header.text.start; length > text + 72 && kind < 3)
            mutate(data + text, kind == 1 ? 72 : length - text);
        else if (length) mutate(data, length);
        if (length >= BODY && roll(8)) {
            const uint64_t sums[2] = {checksum_of(data + BODY, length - BODY), length};
            std::memcpy(data, blob, 16);
            std::memcpy(data + 16, sums, 16);
        }
        elman* model;
        const int code = elman_load_memory(data, length, &model);
        ++codes[code];
        if (!code) {
            use(model);
            elman_free(model);
        }
        std::free(data);
    }
    std::free(memory);
    for (int code = 0; code < 11; ++code) std::printf("%s%llu", code ? " " : "", (unsigned long long)codes[code]);
}
"""


def models() -> dict[str, tuple[StepModel, Tokenizer]]:
    """Of each task, with each scheme of tokens."""
    torch.manual_seed(0)
    kinds: dict[str, dict[str, Any]] = {
        "bpe": {"type": "bpe", "vocab_size": 300},
        "nfc": {"type": "character", "normalize": "nfc"},
    }
    kinds |= {"word": {"type": "word", "lowercase": True, "split": "punctuation"}}
    bpe, nfc, word = (train_tokenizer(kinds[name], LINES) for name in ("bpe", "nfc", "word"))
    attention = {"attention": {"context": 5, "num_heads": 2, "positions": "rotary"}}
    stack = StackConfig.make({"hidden_size": 8, "pattern": ["lstm", attention, {"experts": {"num_experts": 2}}]})
    learned = StackConfig.make({"hidden_size": 8, "pattern": ["gru"], "positions": "learned", "max_positions": 6})
    ngram = NGram(NGram.Config(order=3), word.vocab_size)
    documents = [[*word.encode(line).tolist(), 0] for line in LINES]
    starts = np.cumsum([0, *map(len, documents)])
    store: Any = SimpleNamespace(tokens=np.concatenate(documents).astype(np.int32), starts=starts)
    list(ngram.fit(store))
    config = ClassifierConfig.make({"hidden_size": 8, "pattern": ["gru"], "pooling": "attention"})
    reader = ReaderStep(Classifier(config, word.vocab_size, 3)).eval()
    with torch.no_grad():
        start = reader.start
    return {
        "lstm, attention, experts": (StepModel(LanguageModel(stack, bpe.vocab_size).eval()), bpe),
        "learned positions": (StepModel(LanguageModel(learned, nfc.vocab_size).eval()), nfc),
        "n-gram": (StepModel(ngram.eval()), word),
        "classifier": (StepModel(reader, "one_label", labels=("a", "b", "c"), start=start), word),
    }


@cache
def built(name: str) -> Path:
    """The folder of the harness, compiled with the sanitizers."""
    given, tokenizer = models()[name]
    folder, files = Path(tempfile.mkdtemp()), library_files(given, tokenizer)
    atexit.register(shutil.rmtree, folder)
    for path, data in {**files, "harness.cpp": files["elman.cpp"] + HARNESS.encode()}.items():
        Path(folder, path).parent.mkdir(exist_ok=True)
        Path(folder, path).write_bytes(data)
    subprocess.run(["g++", *FLAGS.split(), "harness.cpp", "-o", "harness"], cwd=folder, check=True)
    return folder


def attack(name: str, count: int, seed: int) -> tuple[str, list[int]]:
    """What the sanitizers say, empty if nothing, and how often each code of elman.h was returned."""
    command, variables = ["./harness", str(count), str(seed)], {**os.environ, "ASAN_OPTIONS": "detect_leaks=1"}
    variables["ASAN_OPTIONS"] += ":allocator_may_return_null=1"
    try:
        ended = subprocess.run(
            command, cwd=built(name), capture_output=True, text=True, check=False, env=variables, timeout=60 + count
        )
    except subprocess.TimeoutExpired:
        return f"no end within {60 + count} s", []
    if ended.returncode:
        return ended.stderr[-3000:] or f"exit code {ended.returncode}", []
    return "", [*map(int, ended.stdout.split())]


def main() -> None:
    options = parser("exported", __doc__, count=24, seed=1).parse_args()
    if not shutil.which("g++"):
        raise SystemExit("needs GCC with its sanitizers")
    campaign, names = Campaign(options), [*models()]
    for number in campaign.numbers():
        name = names[number % len(names)]
        found, codes = attack(name, EACH, seed=(options.seed << 32) + number * EACH)
        campaign.tally(f"{name}: refused", *([found] if found else []), times=sum(codes[1:]))
        campaign.counts[f"{name}: loaded and used"] += sum(codes[:1])
    campaign.end()


if __name__ == "__main__":
    main()
