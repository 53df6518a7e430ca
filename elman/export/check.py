"""Checks a C library against its run before it is called done: tokens of texts, log-probabilities, and generated text
for the same seed; of readers of texts, their answers."""

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elman.batches.examples import Ragged
from elman.compiler.cpu.standalone import StepModel
from elman.compiler.errors import NoCompiler
from elman.errors import RunError
from elman.evaluation.inference_mode import inference_mode
from elman.export.base import Weights
from elman.export.library import Library, compile_library
from elman.generation.sampling import random_stream
from elman.ops.taps import stepping
from elman.pipeline.trained_model import TrainedModel

TOLERANCE = 1e-5  # of log-probabilities, above 1 as a share of them, and of a reader's results
MOST_LOSS = 0.005  # of int8: how much the perplexity may rise, as a share of it
MOST_CHANGE = 0.01  # of int8: the mean difference of probabilities, or of numbers in standard deviations
TOKENS, SEED = 200, 1
TEXTS, LONGEST = 40, 30  # random texts, and their most tokens
ODD = (
    "",
    " ",
    "a  b\n\tc ",
    "Élan élan E\u0301",
    "it's we'll DON'T",
    "日本 가각 👍🏽",
    "<unk> <eos> x<eos>y",
    "\ufffd\x00\u2028",
)


def check(trained: TrainedModel, given: StepModel, weights: Weights, folder: Path) -> list[str]:
    """What was found; an error if the library does not agree with the run."""
    with tempfile.TemporaryDirectory() as aside:
        try:
            compiled = compile_library(folder, Path(aside, "library.so"))
        except NoCompiler as problem:
            return [f"not checked against the run: {problem}"]
        library = Library(compiled, folder / "model.bin")
        try:
            with inference_mode(trained.model):
                found = [_encoding(trained, library)]
                if given.kind != "tokens":
                    found.append(_answers(trained, given, weights, library))
                elif weights == "fp32":
                    found += [_probabilities(trained, library), *_texts(trained, library)]
                else:
                    found.append(_perplexity(trained, library))
        finally:
            library.close()
    return [f"checked against the run: {'; '.join(found)}"]


def _encoding(trained: TrainedModel, library: Library) -> str:
    texts = [*ODD, *sample_texts(trained)]
    tokenizer: Any = trained.task.tokenizer  # type: ignore[attr-defined]
    for text in texts:
        ids = tokenizer.encode(text).tolist()
        if library.encode(text.encode()) != ids:
            raise RunError(f"the export does not agree with the run: {text[:60]!r} has other tokens")
        if library.decode(ids) != tokenizer.decode(ids):
            raise RunError(f"the export does not agree with the run: the tokens of {text[:60]!r} are decoded otherwise")
    return f"{len(texts)} texts have the same tokens"


def sample_texts(trained: TrainedModel) -> Iterator[str]:
    """Texts of random tokens, which few tokenizers give back."""
    random, tokenizer = np.random.default_rng(SEED), trained.task.tokenizer  # type: ignore[attr-defined]
    for _ in range(TEXTS):
        yield tokenizer.decode(random.integers(tokenizer.vocab_size, size=random.integers(1, LONGEST)))


def _steps(trained: TrainedModel, library: Library, tokens: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Log-probabilities before each of these tokens: those of the run, and those of the library."""
    tokenizer, state = trained.tokenizer, trained.model.initial_state(1)
    found = library.reset()
    last = tokenizer.start_id
    for token in [*trained.opening, *tokens]:
        with stepping():
            logits, state = trained.model.step(torch.tensor([last]), state)
        yield logits[0].double().log_softmax(-1), torch.from_numpy(found).double().log_softmax(-1)
        last = tokenizer.start_id if token == tokenizer.eos_id else token
        found = library.step(last)


def _generated(trained: TrainedModel, **settings: Any) -> list[int]:
    """Tokens of the run, of several texts one after another."""
    settings = {"engine": "torch", "stop_at_end": False, "max_tokens": TOKENS, "seed": SEED, **settings}
    return trained.generate_batch([""], **settings)[0].tokens


def _probabilities(trained: TrainedModel, library: Library) -> str:
    worst = 0.0
    for right, found in _steps(trained, library, _generated(trained)):
        gap = torch.where(right == found, 0.0, (right - found).abs() / right.abs().clamp(min=1))  # both may be -inf
        worst = max(worst, float(gap.max()))
        if not worst <= TOLERANCE:
            reason = f"log-probabilities differ by {worst:.1e} ({TOLERANCE:.0e} is allowed)"
            raise RunError(f"the export does not agree with the run: {reason}")
    return f"log-probabilities differ by {worst:.1e} at most"


def _texts(trained: TrainedModel, library: Library) -> Iterator[str]:
    for name, temperature in (("greedy", 0.0), (f"sampled (seed {SEED})", 1.0)):
        settings = {"temperature": temperature, "seed": SEED, "max_tokens": TOKENS, "stop_at_end": False}
        (right,) = trained.generate_batch([""], engine="torch", **settings)
        found = library.generate("", **settings)
        pairs = enumerate(zip(right.tokens, found.tokens, strict=True))
        other = next((n for n, (one, two) in pairs if one != two), None)
        if other is None and found.text != right.text:
            raise RunError(f"the export does not agree with the run: the {name} text is spelled otherwise")
        if other is not None and not _is_tie(trained, right.tokens[: other + 1], found.tokens[other], temperature):
            raise RunError(f"the export does not agree with the run: token {other} of the {name} text is another one")
        yield f"{TOKENS if other is None else other} {name} tokens are the same" + (
            ", then two are equally good" if other is not None else ""
        )


def _is_tie(trained: TrainedModel, right: list[int], found: int, temperature: float) -> bool:
    """Whether rounding errors decide between the last token and another one."""
    state, logits, last = trained.model.initial_state(1), None, trained.tokenizer.start_id
    for token in [*trained.opening, *right]:
        with stepping():
            logits, state = trained.model.step(torch.tensor([last]), state)
        last = trained.tokenizer.start_id if token == trained.tokenizer.eos_id else token
    assert logits is not None
    scores = logits[0].double().log_softmax(-1)
    if not temperature:
        return bool((scores[right[-1]] - scores[found]).abs() <= 2 * TOLERANCE)
    uniform = random_stream(SEED, 0).random(len(right))[-1]
    return bool((scores.exp().cumsum(-1) - uniform).abs().min() <= TOLERANCE)


def _perplexity(trained: TrainedModel, library: Library) -> str:
    tokens = _generated(trained, max_tokens=5 * TOKENS)
    pairs = zip(_steps(trained, library, tokens), [*trained.opening, *tokens], strict=True)
    nats = -np.array([[float(one[token]) for one in both] for both, token in pairs]).mean(0)
    loss = math.expm1(nats[1] - nats[0])
    text = (
        f"perplexity {math.exp(nats[1]):.4g} with int8 and {math.exp(nats[0]):.4g} with the run's weights ({loss:+.2%})"
    )
    if not loss <= MOST_LOSS:
        raise RunError(
            f"the export does not agree with the run: {text}, {MOST_LOSS:.1%} is allowed; use --weights fp32"
        )
    return f"{text}, on {len(tokens)} tokens that the run has generated"


def _answers(trained: TrainedModel, given: StepModel, weights: Weights, library: Library) -> str:
    gaps, unit = [], "probabilities" if given.kind != "number" else "results"
    for text in ("", *sample_texts(trained)):
        ids = trained.task.tokenizer.encode(text)[: given.max_tokens or None]  # type: ignore[attr-defined]
        tokens = torch.from_numpy(np.asarray(ids, np.int64)).unsqueeze(0)
        logits = trained.model.logits(Ragged(tokens, torch.tensor([len(ids)])))[0].double()
        results = torch.from_numpy(library.classify(text)).double()
        if given.kind == "number":
            gaps.append(((results - given.mean) / given.scale - logits).abs())
        else:
            gaps.append((results - (logits.softmax(-1) if given.kind == "one_label" else logits.sigmoid())).abs())
    worst, mean = float(torch.stack(gaps).max()), float(torch.stack(gaps).mean())
    if not (worst <= TOLERANCE if weights == "fp32" else mean <= MOST_CHANGE):
        raise RunError(f"the export does not agree with the run: {unit} differ by {worst:.1e}, {mean:.1e} on average")
    return f"{unit} of {len(gaps)} texts differ by {worst:.1e} at most"
