"""Lab: decoding strategies of one language model."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
import torch

from elman.batches import Documents, TokenStore
from elman.corpus.synthetic import Language, make_language
from elman.errors import DataError
from elman.figures.figure import Figure
from elman.figures.panels import Bars, Lines
from elman.generation import BeamConfig, GenerationConfig, beam_search, generate
from elman.inspection.labs.lab import Lab, Progress, Result
from elman.inspection.small_models import adam, fit
from elman.models import LanguageModel, StackConfig
from elman.tokenizers import Tokenizer, train_tokenizer

LANGUAGE = {"type": "agreement", "max_phrases": 2, "words_per_class": 8, "test_documents": 300}
LONGEST = 60
NGRAM = 4  # words of the n-grams by which diversity and repetition are measured
SWEEPS: dict[str, list[dict[str, Any]]] = {
    "temperature 0.3 to 2": [{"temperature": value} for value in (0.3, 0.5, 0.7, 1.0, 1.5, 2.0)],
    "top-k 2 to 40": [{"top_k": value} for value in (2, 3, 5, 10, 20, 40)],
    "top-p 0.3 to 0.99": [{"top_p": value} for value in (0.3, 0.5, 0.7, 0.9, 0.95, 0.99)],
}
SHOWN: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "temp. 0.5": {"temperature": 0.5},
    "temp. 1": {},
    "temp. 2": {"temperature": 2.0},
    "top-k 10": {"top_k": 10},
    "top-p 0.9": {"top_p": 0.9},
}
BEAMS, PENALTIES = (2, 4, 8, 16, 32), (0.0, 1.0, 2.0)


class Generator(NamedTuple):
    model: LanguageModel
    tokenizer: Tokenizer
    language: Language
    texts: int  # of a sample

    def sample(self, seed: int, **settings: Any) -> list[str]:
        config = GenerationConfig(max_tokens=LONGEST, seed=seed, **settings)
        return [text.text for text in generate(self.model, self.tokenizer, [""] * self.texts, config)]

    def search(self, **settings: Any) -> list[str]:
        """Hypotheses of beam search, the best first."""
        eos, config = self.tokenizer.eos_id, BeamConfig(max_tokens=LONGEST, **settings)
        (found,) = beam_search(self.model, self.model.initial_state(1), eos, config).lists(eos)
        return [self.tokenizer.decode(one.tokens) for one in found]

    def allowed(self, text: str) -> bool:
        """Whether the language generates this sentence."""
        try:
            self.language.log_probs(text.split())
        except DataError:
            return False
        return True


class TextStatistics(NamedTuple):
    right: float  # share of grammatical sentences
    different: float  # distinct n-grams as a share of all (distinct-4)
    repeated: float  # share of n-grams that occurred before in the same text


def experiment(seed: int, progress: Progress, *, units: int = 64, sentences: int = 25_600, texts: int = 300) -> Result:
    generator = trained(seed, progress, units, sentences, texts)
    shown = {name: generator.sample(seed, **settings) for name, settings in SHOWN.items()}
    shown[f"beam of {BEAMS[-1]}"] = generator.search(beam_size=BEAMS[-1])
    statistics = {name: statistics_of(generator, texts) for name, texts in shown.items()}
    names = ("grammatical", f"distinct {NGRAM}-grams", "repeated within a text")
    series = dict(zip(names, zip(*statistics.values(), strict=True), strict=True))
    notes = [f"{name}: {shorten(texts[0], 80, placeholder=' …')}" for name, texts in shown.items()]
    curves = {}
    for name, sweep in SWEEPS.items():
        points = [statistics_of(generator, generator.sample(seed, **settings)) for settings in sweep]
        curves[name] = ([one.different for one in points], [one.right for one in points])
    trade = Lines(curves, f"distinct {NGRAM}-grams (share)", "grammatical (share)", limits=(0, 1.03))
    words: dict[str, list[float]] = {
        f"length penalty {penalty:g}": [
            len(generator.search(beam_size=size, length_penalty=penalty)[0].split()) for size in BEAMS
        ]
        for penalty in PENALTIES
    }
    usual = float(np.mean([len(document.text.split()) for document in generator.language.split("test")]))
    words["mean of the language"] = [usual] * len(BEAMS)
    lines = {name: (BEAMS, lengths) for name, lengths in words.items()}
    by_beam = Lines(lines, "beam size", "words", "x", limits=(0, 1.05 * max(map(max, words.values()))))
    measured = {
        "right, temperature 0.5": statistics["temp. 0.5"].right,
        "right, temperature 1": statistics["temp. 1"].right,
        "right, temperature 2": statistics["temp. 2"].right,
        "right, top-p 0.9": statistics["top-p 0.9"].right,
        "different, greedy": statistics["greedy"].different,
        "different, temperature 1": statistics["temp. 1"].different,
        "words of a sentence, mean": usual,
        "words of the best of 32 beams": words["length penalty 0"][-1],
        "the same, length penalty 2": words["length penalty 2"][-1],
    }
    figures = [
        Figure("Decoding strategies", [Bars([*statistics], series, "share", (0, 1))], notes),
        Figure("Quality against diversity", [trade]),
        Figure("Length of the best hypothesis of beam search", [by_beam]),
    ]
    return Result(figures, measured)


def trained(seed: int, progress: Progress, units: int = 64, sentences: int = 25_600, texts: int = 300) -> Generator:
    language, training = (
        make_language({**LANGUAGE, "train_documents": sentences, "seed": seed}),
        adam(1e-2, batch_size=32, max_epochs=1),
    )
    documents = list(language.split("train"))
    tokenizer = train_tokenizer("word", [document.text for document in documents])
    config = StackConfig.make({"pattern": ["lstm"], "hidden_size": units})
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
        store = TokenStore.build(documents, tokenizer, Path(folder), "train", "lab")
        torch.manual_seed(seed)
        model = LanguageModel(config, tokenizer.vocab_size)
        batches = Documents(store, training.batch_size, training.sequence_length, seed)
        fit("language model", model, batches, training, progress)
    return Generator(model.eval(), tokenizer, language, texts)


def statistics_of(generator: Generator, texts: Sequence[str]) -> TextStatistics:
    found = [ngrams(text) for text in texts]
    count = max(1, sum(map(len, found)))
    copies = sum(len(some) - len(set(some)) for some in found)
    right = float(np.mean([generator.allowed(text) for text in texts]))
    return TextStatistics(right, len(set().union(*found)) / count, copies / count)


def ngrams(text: str) -> list[tuple[str, ...]]:
    words = text.split()
    return [tuple(words[place : place + NGRAM]) for place in range(len(words) - NGRAM + 1)]


LAB = Lab(
    "decoding",
    "Decoding",
    "A language model gives probabilities. How should text be decoded: greedily, by sampling, by truncated "
    "sampling, or by beam search?",
    "Every strategy has a cost. Greedy decoding gives one sentence again and again, often with a loop. Sampling "
    "from the full distribution is diverse; at a high temperature most sentences are ungrammatical. Truncated "
    "sampling (top-k, top-p) removes the unreliable tail and keeps almost all diversity. A wide beam finds the "
    "most probable sentence, which is the shortest, since every further word costs probability; a length penalty "
    "of sufficient strength repairs that.",
    {
        "right, temperature 0.5": (0.75, 0.97),
        "right, temperature 1": (0.72, 0.95),
        "right, temperature 2": (0.15, 0.5),
        "right, top-p 0.9": (0.8, 1.0),
        "different, greedy": (0.0, 0.01),
        "different, temperature 1": (0.9, 1.0),
        "words of a sentence, mean": (7.5, 9.3),
        "words of the best of 32 beams": (3, 5),
        "the same, length penalty 2": (7, 16),
    },
    experiment,
    "The best strategy depends on the task: a translation has few correct outputs, a story many. A low temperature "
    "is not always safer: this model begins to loop.",
    try_next={
        "sentences=6400": "How much of the unreliable tail is a lack of training?",
        "units=256": "Does a larger model need less truncation?",
    },
)
