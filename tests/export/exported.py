"""Exported C libraries of small models, each compiled once in a session."""

import tempfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from elman.compiler.cpu.standalone import StepModel
from elman.export.c import library_files
from elman.export.library import FAST, Library, compile_library
from elman.models import Classifier, ClassifierConfig, LanguageModel, NGram, StackConfig
from elman.models.reader_step import ReaderStep
from elman.tokenizers import train_tokenizer

LINES = [
    "the cat sat on the mat.",
    "A dog, a Cat and an Élan ran!",
    "Was it 12 or 345? It's we'll.",
    "日本 가각 <x> a—b",
]
SCHEMES = {
    "byte": {"type": "byte"},
    "bpe": {"type": "bpe", "vocab_size": 300},
    "character": {"type": "character"},
    "nfc": {"type": "character", "normalize": "nfc"},
    "nfd": {"type": "character", "normalize": "nfd"},
    "word": {"type": "word"},
    "lower": {"type": "word", "lowercase": True},
    "punctuation": {"type": "word", "lowercase": True, "split": "punctuation"},
}
AS_NATIVE = [*FAST, "-march=native"]
QUICK = ["-O1", "-march=native"]
STRICT = [*QUICK, "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
ASIDE = tempfile.TemporaryDirectory()


@cache
def tokenizer(scheme: str = "bpe"):
    return train_tokenizer(SCHEMES[scheme], LINES * 3)


@cache
def language_model(scheme: str = "bpe", hidden_size: int = 24, *pattern: str):
    torch.manual_seed(0)
    config = StackConfig.make({"hidden_size": hidden_size, "pattern": [*(pattern or ("lstm", "gru"))]})
    return sharpened(LanguageModel(config, tokenizer(scheme).vocab_size))


def sharpened(model):
    """Untrained models find all tokens equally probable, where any mistake would pass."""
    torch.nn.init.normal_(model.embedding.weight, std=0.3)
    return model.eval()


def classifier(pooling: str = "last", *pattern: str):
    torch.manual_seed(0)
    config = ClassifierConfig.make({"hidden_size": 12, "pattern": [*(pattern or ("gru",))], "pooling": pooling})
    return sharpened(Classifier(config, tokenizer("punctuation").vocab_size, 3))


def fitted_ngram():
    model = NGram(NGram.Config(order=3), tokenizer("word").vocab_size)
    documents = [[*tokenizer("word").encode(line).tolist(), 0] for line in LINES]
    starts = np.cumsum([0, *map(len, documents)])
    list(model.fit(SimpleNamespace(tokens=np.concatenate(documents).astype(np.int32), starts=starts)))
    return model.eval()


def folder(name: str, files) -> Path:
    place = Path(ASIDE.name, name)
    (place / "kernels").mkdir(parents=True, exist_ok=True)
    for path, data in files.items():
        (place / path).write_bytes(data)
    return place


def build(name: str, given: StepModel, scheme: str, weights="fp32", flags=QUICK, compiler: str = "") -> Library:
    place = folder(name, library_files(given, tokenizer(scheme), weights))
    return Library(compile_library(place, place / "library.so", *flags, compiler=compiler), place / "model.bin")


@cache
def library(scheme: str = "bpe", hidden_size: int = 24, weights: str = "fp32") -> Library:
    flags = QUICK if weights == "fp32" else AS_NATIVE  # else a rounding error decides between two whole numbers
    given = StepModel(language_model(scheme, hidden_size))
    return build(f"{scheme}-{hidden_size}-{weights}", given, scheme, weights, flags)


@cache
def reading_library(pooling: str = "attention"):
    model = classifier(pooling)
    reader = ReaderStep(model).eval()
    with torch.no_grad():
        given = StepModel(reader, "one_label", labels=("bad", "good", "neither"), start=reader.start)
        return build(f"reader-{pooling}", given, "punctuation"), model
