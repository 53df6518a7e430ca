"""Speed of a trained model on this machine: training, generation, prefill, prediction and memory.

Variants (elman's engines, the same model in plain PyTorch, onnxruntime) take turns in rounds. A variant whose logits
differ from the model's is not timed; `skipped` says why, as it does for variants that cannot run here.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elman.bench.harness import compare, interleaved, machine, peak_memory
from elman.bench.peer_models import WEIGHTS, NoCounterpart, OnnxModel, TorchModel, Weights, torch_tokens
from elman.bench.updates import training_work
from elman.errors import ConfigError, ElmanError
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation import GenerationConfig
from elman.generation.engine import find_engine, prefill_by_steps
from elman.generation.stream import generate_tokens, prefill
from elman.models import is_masked
from elman.models.stack import count_parameters
from elman.pipeline.trained_model import load

TOKENS = 128  # generated per round and variant
BLOCK = 16  # tokens per latency sample: the native engine returns them 16 at a time
PROMPT = 256  # tokens of prefill
TEXTS = 32  # predicted per round
TOLERANCE = 1e-3  # of logits, relative to the largest
SENTENCE = "The quick brown fox jumps over the lazy dog ."

Variants = dict[str, Callable[[], Any]]
Measurements = dict[str, Any]


class RunSpeed:
    """Measures one run; `skipped` maps what could not be measured to the reason."""

    def __init__(self, run: Path, rounds: int, device: str = "auto", listen: Callable[[str], None] = lambda text: None):
        self.run, self.rounds, self.listen = run, rounds, listen
        self.trained = load(run, device)
        self.model, self.device = self.trained.model, device_of(self.trained.model)
        self.counted = getattr(self.model, "fits_by_counting", False)
        self.skipped: dict[str, str] = {}
        self.torch_model: TorchModel | None = None

    def measure(self) -> Measurements:
        """All measurements that apply to the model, as plain values; None where one does not."""
        found: Measurements = {"run": str(self.run), "task": self.trained.task.name, "rounds": self.rounds}
        parameters = 0 if self.counted else count_parameters(self.model)
        found |= {"parameters": parameters, "device": str(self.device), "machine": machine()}
        if self._generates():
            self._build_torch_model()
        sentence = SENTENCE.replace("fox", "<mask>") if is_masked(self.model) else SENTENCE
        found["training"], lines = self._training([sentence])
        if self._generates():
            found |= {"generation": self._generation(), "prefill": None if self.counted else self._prefill()}
        else:
            found["prediction"] = self._prediction(list(itertools.islice(itertools.cycle(lines), TEXTS)))
        return {**found, "skipped": self.skipped}

    def _generates(self) -> bool:
        try:
            return bool(self.trained.tokenizer) and not is_masked(self.model)
        except ConfigError:  # only language models have one tokenizer
            return False

    def _training(self, lines: list[Any]) -> tuple[Measurements | None, list[Any]]:
        """Updates of a fresh copy of the model; and texts of the run's data for `predict`, if it can be read."""
        if self.counted:
            self.skipped["training"] = "n-gram models are trained by counting, not by updates"
            return None, lines
        try:
            work = training_work(self.trained, self.run, self.device, TEXTS)
        except (ElmanError, OSError) as problem:
            self.skipped["training"] = f"the data of the run cannot be read: {problem}"
            return None, lines
        variants = work.variants if self.torch_model is not None else {"elman": work.variants["elman"]}
        timed = self._timed("training", variants, work.units)
        for row in timed["variants"].values():
            row["ms_per_update"] = row["ms"] / work.about["updates"]
        return {**work.about, **timed, "peak_memory_bytes": work.peak_memory_bytes}, work.lines or lines

    def _build_torch_model(self) -> None:
        """The plain PyTorch counterpart, if there is one and its logits are the model's."""
        try:
            made = TorchModel(self.model).eval()
        except NoCounterpart as problem:
            self.skipped["plain torch"] = str(problem)
            return
        tokens = torch.randint(made.vocab_size, (1, 20), device=self.device)
        with inference_mode(self.model):
            stepped, _ = made.step(tokens[:, 0], made.initial_state())
            expected = self.model(tokens)[0]
            if self._agrees("plain torch", made(tokens)[0], expected):
                self.torch_model = made if self._agrees("plain torch", stepped, expected[:, 0]) else None

    def _generation(self) -> Measurements:
        """One text of TOKENS tokens, sampled from the full distribution, by every engine that runs."""
        writers: dict[str, Callable[[], Iterator[Any]]] = {}
        engines = [("torch", "fp32"), ("native", "fp32"), ("native", "int8"), ("captured", "fp32")]
        for engine, weights in engines if self.device.type == "cuda" else engines[:-1]:
            name = f"elman, {engine}" + (f" {weights}" if engine == "native" else "")
            if config := self._engine(name, engine, weights):
                writers[name] = partial(generate_tokens, self.model, [[]], config, self.trained.tokenizer.eos_id)
        if made := self.torch_model:
            writers["plain torch"] = partial(torch_tokens, made, self.device)
        for form in WEIGHTS:
            if session := self._onnx(form):
                writers[f"onnxruntime {form}"] = session.tokens
        samples: dict[str, list[float]] = {name: [] for name in writers}

        def text(name: str) -> Callable[[], None]:
            return lambda: samples[name].extend(_block_times(writers[name]()))

        with peak_memory(self.device) as peak:
            _block_times(writers["elman, torch"]())
        timed = self._timed("generation", {name: text(name) for name in writers}, TOKENS)
        for name, row in timed["variants"].items():
            row.update(_latency(samples[name][-self.rounds * (TOKENS // BLOCK - 1) :]))
        return {"unit": "tokens", "tokens": TOKENS, **timed, "peak_memory_bytes": peak.bytes}

    def _engine(self, name: str, engine: str, weights: str) -> GenerationConfig | None:
        """Settings that generate with an engine, or None if it cannot run or gives other logits than torch."""
        settings = {"engine": engine, "weights": weights, "max_tokens": TOKENS, "seed": 1, "stop_at_end": False}
        config = GenerationConfig.make(settings)
        try:
            with inference_mode(self.model):
                found = find_engine(self.model, config)
                if found.program is None:
                    return config
                if weights == "fp32":
                    logits, _ = prefill_by_steps(found.program, [0, 1, 0], self.model.initial_state(1))
                    return config if self._agrees(name, logits, prefill(self.model, [[1, 0]], 0)[0]) else None
        except ConfigError as problem:
            self.skipped[name] = str(problem).partition("cannot run: ")[2].partition(";")[0] or str(problem)
            return None
        _, rounded, reason = found.reason.partition("fp32: ")  # int8 was asked for, but no matrix was quantized
        if rounded:
            self.skipped[name] = reason
        return None if rounded else config

    def _onnx(self, weights: Weights) -> OnnxModel | None:
        name = f"onnxruntime {weights}"
        missing = [package for package in ("onnx", "onnxruntime") if find_spec(package) is None]
        if self.torch_model is None:
            self.skipped[name] = "only models that plain torch has modules for are exported to ONNX"
        elif self.device.type != "cpu":
            self.skipped[name] = "runs on the CPU only"
        elif missing:
            self.skipped[name] = f"not installed: pip install {' '.join(missing)}"
        else:
            made = OnnxModel(self.torch_model, weights)
            with inference_mode(self.model):
                expected, _ = self.model.step(torch.tensor([1]), self.model.initial_state(1))
            if weights == "int8" or self._agrees(name, made.step(1).unsqueeze(0), expected):
                return made
        return None

    def _prefill(self) -> Measurements:
        """Reading a prompt of PROMPT random tokens up to the logits after it."""
        prompt = torch.randint(self.model.vocab_size, (PROMPT,)).tolist()
        start, made = self.trained.tokenizer.start_id, self.torch_model

        def elman() -> None:
            with inference_mode(self.model):
                prefill(self.model, [prompt], start)[0].sum().item()  # waits for the device

        @torch.inference_mode()
        def plain() -> None:
            assert made is not None
            made(torch.tensor([[start, *prompt]], device=self.device))[0][:, -1].sum().item()

        variants: Variants = {"elman": elman, **({"plain torch": plain} if made else {})}
        with peak_memory(self.device) as peak:
            elman()
        timed = self._timed("prefill", variants, PROMPT)
        return {"unit": "tokens", "tokens": PROMPT, **timed, "peak_memory_bytes": peak.bytes}

    def _prediction(self, lines: list[Any]) -> Measurements:
        """Texts per second of `predict`, one at a time (with latency) and all in one call."""
        samples: list[float] = []

        def one_by_one() -> None:
            for line in lines:
                began = time.perf_counter()
                list(self.trained.predict([line]))
                samples.append(time.perf_counter() - began)

        def together() -> None:
            list(self.trained.predict(lines))

        with peak_memory(self.device) as peak:
            together()
        timed = self._timed("prediction", {"one at a time": one_by_one, "all in one call": together}, TEXTS)
        timed["variants"]["one at a time"].update(_latency(samples[-self.rounds * TEXTS :]))
        return {"unit": "texts", "texts": TEXTS, **timed, "peak_memory_bytes": peak.bytes}

    def _agrees(self, name: str, found: Tensor, expected: Tensor) -> bool:
        gap = float((found.double() - expected.double()).abs().max() / (1 + expected.double().abs().max()))
        if gap > TOLERANCE:
            self.skipped[name] = f"its logits differ from the model's by {gap:.2g} (relative)"
        return gap <= TOLERANCE

    def _timed(self, what: str, variants: Variants, units: int) -> Measurements:
        """Interleaved rounds: units per second at the median, and speed-up over plain torch, else the first variant."""
        self.listen(f"{what}: {self.rounds} rounds of {'; '.join(variants)}")
        against = "plain torch" if "plain torch" in variants else next(iter(variants))
        seconds = interleaved(variants, self.rounds)
        table: dict[str, dict[str, float]] = compare(seconds, against)
        for name, row in table.items():
            row["per_second"] = units / statistics.median(seconds[name])
        return {"against": against, "variants": table}


def _block_times(tokens: Iterator[Any]) -> list[float]:
    """Seconds per token over every BLOCK of tokens, TOKENS in all, without the first block, which includes set-up."""
    times, began = [], time.perf_counter()
    for number, _ in enumerate(itertools.islice(tokens, TOKENS), start=1):
        if number % BLOCK == 0:
            now = time.perf_counter()
            times.append((now - began) / BLOCK)
            began = now
    return times[1:]


def _latency(seconds: list[float]) -> dict[str, float]:
    """Median and 95th percentile in milliseconds."""
    cuts = statistics.quantiles(seconds, n=20) if len(seconds) > 1 else seconds * 19
    return {"p50_ms": statistics.median(seconds) * 1e3, "p95_ms": cuts[-1] * 1e3}
