"""Rows in slots of a GPU: the same tokens in any company, tokens per second of many streams, and the roofline.

    python -m benchmarks.serving.gpu_rows [--out FOLDER] [--quick]

In one process, without a web server: a scheduler with its rows. Texts are held to each other before anything is timed.
The model is an LSTM of two layers, 512 wide, over 10,000 words; a GRU, a Mamba and attention beside it. A part that
fails is recorded, and the next one runs.
"""

import argparse
import itertools
import json
import random
import statistics
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from elman.bench.harness import machine
from elman.evaluation.inference_mode import device_of
from elman.models import LanguageModel, StackConfig
from elman.ops.state import leaves, map_state
from elman.serving.generation import Failed, Finished, Generation, Piece, Snapshot
from elman.serving.rows import Plan, Rows, Rule
from elman.serving.scheduler import QueueFull, Scheduler
from elman.serving.slot_rows import BLOCK, Kind, SlotRows
from elman.tokenizers import train_tokenizer

LENGTHS = 16, 64  # tokens of a completion
PROMPT = 10
ATTENTION = {"attention": {"num_heads": 8, "context": 256, "positions": "rotary"}}
MODELS: dict[str, dict[str, Any]] = {
    "lstm": {"pattern": ["lstm", "lstm"]},
    "gru": {"pattern": ["gru", "gru"]},
    "mamba": {"pattern": ["mamba", "mamba"], "residual": True, "norm": "pre"},
    "attention": {"pattern": [ATTENTION, "swiglu"] * 2, "residual": True, "norm": "pre"},
}
SETTINGS: list[dict[str, Any]] = [{}, {"top_p": 0.9}, {"top_k": 40, "temperature": 1.3}, {"temperature": 0.0}]
SETTINGS += [{"repetition_penalty": 1.3}, {"min_p": 0.05, "presence_penalty": 0.5}]


class Setup(NamedTuple):
    device: str
    vocabulary: int = 10_000
    width: int = 512
    block: int = BLOCK


class Text(NamedTuple):
    tokens: list[int]
    log_probs: list[float]
    snapshot: Snapshot | None


class Bench:
    """A model, its slots and its tokenizer."""

    def __init__(self, name: str, streams: int, setup: Setup):
        torch.manual_seed(0)
        self.setup, self.streams = setup, streams
        self.tokenizer = tokenizer_of(setup.vocabulary)
        config = StackConfig.make({"hidden_size": setup.width, "tied_embeddings": False, **MODELS[name]})
        self.model = LanguageModel(config, self.tokenizer.vocab_size).eval().to(setup.device)
        torch.nn.init.normal_(self.model.output_weight, std=0.3)  # or all tokens are as likely
        self.rows = self.slots()
        with torch.inference_mode():
            self.initial = map_state(torch.clone, self.model.initial_state(1))

    def slots(self) -> SlotRows:
        return SlotRows(self.model, self.streams, block=self.setup.block)

    def generation(self, number: int, limit: int | None = None, **more: Any) -> Generation:
        from elman.generation import GenerationConfig

        draw = random.Random(number)
        own = {"seed": number, "stop_at_end": False, **SETTINGS[number % len(SETTINGS)], **more.pop("settings", {})}
        known = [
            self.tokenizer.start_id,
            *(draw.randrange(2, self.setup.vocabulary) for _ in range(draw.randint(1, 20))),
        ]
        known = more.pop("known", known)
        config = GenerationConfig.make(own)
        limit = draw.randint(*LENGTHS) if limit is None else limit
        return Generation(known, config, self.tokenizer, limit=limit, seed=number, **more)

    def scheduler(self, deliver: Callable[[Any], None], rows: Rows | None = None, **more: Any) -> Scheduler:
        marks = self.tokenizer.eos_id, self.tokenizer.start_id
        options = {"max_rows": 10**6, "max_queue": 10**6, "cache_bytes": 0, **more}
        return Scheduler(rows or self.rows, self.initial, *marks, deliver, **options)

    def run(self, groups: Sequence[Sequence[Generation]], most: int, together: int = 1) -> dict[Generation, Text]:
        """The texts of all generations: `together` groups are in work at a time, each submitted as one ends."""
        waiting, done = list(reversed(groups)), threading.Event()
        left = {one for group in groups for one in group}
        group_of = {one: rest for rest in map(set, groups) for one in rest}
        found: dict[Generation, Text] = {one: Text([], [], None) for one in left}
        problems: list[Exception] = []

        def deliver(box: list[tuple[Generation, Any]]) -> None:
            for one, output in box:
                if isinstance(output, Piece):
                    found[one].tokens.append(output.token)
                    found[one].log_probs.append(output.log_prob)
                elif isinstance(output, Finished | Failed):
                    left.discard(one)
                    group_of[one].discard(one)
                    if isinstance(output, Failed):
                        problems.append(output.problem)
                    else:
                        found[one] = found[one]._replace(snapshot=output.snapshot)
                    if not group_of[one] and waiting:
                        scheduler.submit(object(), waiting.pop())
            if not left or problems:
                done.set()

        scheduler = self.scheduler(deliver, max_rows=most)
        for _ in range(min(together, len(waiting))):
            scheduler.submit(object(), waiting.pop())
        ended = done.wait(60)
        scheduler.close()
        if problems or not ended:
            raise problems[0] if problems else TimeoutError(f"{len(left)} texts have not ended")
        return found


_tokenizers: dict[int, Any] = {}


def tokenizer_of(vocabulary: int) -> Any:
    if vocabulary not in _tokenizers:
        words = " ".join(f"w{number}" for number in range(vocabulary - 2))
        _tokenizers[vocabulary] = train_tokenizer(
            {"type": "word", "min_frequency": 1, "vocab_size": vocabulary}, [words]
        )
    return _tokenizers[vocabulary]


def same_texts(name: str, count: int, streams: int, setup: Setup) -> dict[str, Any]:
    """Texts alone, in mixed company of changing size, and restored from snapshots that have been on the host."""
    bench = Bench(name, streams, setup)
    draw = random.Random(1)

    def texts(**more: Any) -> list[Generation]:
        return [bench.generation(number, keep=True, **more) for number in range(count)]

    began = time.perf_counter()
    alone = texts()
    expected = bench.run([[one] for one in alone], 1)
    result: dict[str, Any] = {"texts": count, "seconds_alone": time.perf_counter() - began}

    def compare(title: str, own: list[Generation], found: dict[Generation, Text], others: list[Text]) -> None:
        pairs = [(found[one], other) for one, other in zip(own, others, strict=True)]
        result[title] = {
            "same_tokens": sum(a.tokens == b.tokens for a, b in pairs),
            "same_log_probs": sum(a.log_probs == b.log_probs for a, b in pairs),
            "largest_difference": max(
                (abs(x - y) for a, b in pairs for x, y in zip(a.log_probs, b.log_probs, strict=False)), default=0.0
            ),
        }
        states = [(a.snapshot.state, b.snapshot.state) for a, b in pairs if a.snapshot and b.snapshot]
        result[title]["same_states"] = sum(
            all(torch.equal(x, y) for x, y in zip(leaves(a), leaves(b), strict=True)) for a, b in states
        )
        print(f"  {name}, {title}: {result[title]}", flush=True)

    before = [expected[one] for one in alone]
    for title, sizes in {"mixed": (2, 64), "crowd": (count, count)}.items():
        own = texts()
        order, groups = draw.sample(own, len(own)), []
        while order:
            size = draw.randint(*sizes)
            groups.append(order[:size])
            order = order[size:]
        compare(title, own, bench.run(groups, streams, together=3), before)
    greedy = {"settings": {"temperature": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0}}
    whole = texts(limit=40, **greedy)
    expected = bench.run([whole[:5], *([one] for one in whole[5:])], streams)
    first = texts(limit=17, **greedy)
    halves = bench.run([first], streams)
    rest = []
    for number, one in enumerate(first):
        kept = halves[one].snapshot
        assert kept is not None
        state = map_state(lambda part: part.cpu().to(setup.device), kept.state)
        known = list(kept.pending)
        rest.append(bench.generation(number, 23, keep=True, start=kept._replace(state=state), known=known, **greedy))
    bench.rows = bench.slots()  # as after a restart
    others = bench.run([draw.sample(rest, len(rest))], streams)
    joined = {
        one: Text(
            halves[a].tokens + others[one].tokens, halves[a].log_probs + others[one].log_probs, others[one].snapshot
        )
        for a, one in zip(first, rest, strict=True)
    }
    compare("restored", rest, joined, [expected[one] for one in whole])
    return result


def served(bench: Bench, streams: int, seconds: float) -> dict[str, float]:
    """Tokens per second of so many streams, each with a new text as one ends, after a warm-up of the same."""
    numbers, lock = itertools.count(), threading.Lock()
    counted, first, marks = [0], [], {}
    measuring, over = threading.Event(), threading.Event()
    problems: list[Exception] = []

    def submit(how_many: int) -> None:
        for _ in range(how_many):
            number = next(numbers)
            one = bench.generation(len(SETTINGS) * number, random.Random(number).randint(*LENGTHS))
            marks[one] = time.perf_counter()
            with suppress(QueueFull):  # it is being closed
                scheduler.submit(object(), [one])

    def deliver(box: list[tuple[Generation, Any]]) -> None:
        ended, now = 0, time.perf_counter()
        pieces = 0
        for one, output in box:
            if output.__class__ is Piece:
                pieces += 1
                if (began := marks.pop(one, None)) is not None and measuring.is_set():
                    first.append(now - began)
            else:
                ended += 1
                if isinstance(output, Failed) and not over.is_set():
                    problems.append(output.problem)
        with lock:
            counted[0] += pieces
        if not over.is_set():
            submit(ended)

    scheduler = bench.scheduler(deliver, max_rows=streams, cache_bytes=2**26)
    submit(streams)
    time.sleep(1.5)
    with lock:
        before, began = counted[0], time.perf_counter()
    measuring.set()
    time.sleep(seconds)
    with lock:
        tokens, took = counted[0] - before, time.perf_counter() - began
    over.set()
    scheduler.close()
    if problems:
        raise problems[0]
    first.sort()
    entry = {"tokens_per_second": tokens / took}
    if first:
        entry |= {
            "first_token_p50_ms": first[len(first) // 2] * 1e3,
            "first_token_p99_ms": first[-len(first) // 100] * 1e3,
        }
    return entry


def device_time(function: Callable[[], Any], repeats: int = 20) -> float:
    """Median seconds of a call, by events of the device."""
    for _ in range(3):
        function()
    if not torch.cuda.is_available():
        return statistics.median(_wall(function) for _ in range(3))
    found = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        function()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(found)


def _wall(function: Callable[[], Any]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def ceilings(setup: Setup, size: int = 4096, mb: int = 2048) -> dict[str, float]:
    """Bandwidth of a copy (bytes read and written), and rates of matrix products in fp32: square, and of a block."""
    source = torch.randn(mb * 2**18, device=setup.device)
    target = torch.empty_like(source)
    seconds = device_time(lambda: target.copy_(source))
    found = {"copy_bytes_per_second": 2 * source.nbytes / seconds}
    a, b = torch.randn(size, size, device=setup.device), torch.randn(size, size, device=setup.device)
    found["fp32_flops"] = 2 * size**3 / device_time(lambda: torch.mm(a, b))
    for rows in (BLOCK, 1024):
        x = torch.randn(rows, setup.width, device=setup.device)
        weight = torch.randn(setup.vocabulary, setup.width, device=setup.device)
        seconds = device_time(lambda x=x, weight=weight: torch.nn.functional.linear(x, weight))  # type: ignore[misc]
        found[f"fp32_flops_output_layer_{rows}_rows"] = 2 * rows * weight.numel() / seconds
    return found


def steps(name: str, setup: Setup, limits: dict[str, float], sizes: Sequence[int]) -> dict[str, Any]:
    """Seconds of a step and of a draw on the device, and of plans of 16 steps as the scheduler calls them, without it;
    the least that the model's bytes and products take beside them."""
    bench = Bench(name, max(sizes), setup)
    rows, model = bench.rows, bench.model
    weights = sum(part.numel() for part in model.parameters())
    matrix = weights - model.embedding.weight.numel()
    state = sum(part.nbytes for part in leaves(bench.initial))
    found: dict[str, Any] = {}
    numbers: list[int] = []
    for size in sizes:
        numbers += [rows.add(bench.initial, Rule()) for _ in range(size - len(numbers))]
        plans = [Plan(number, [3], (), [0.5] * rows.steps, 0, False) for number in numbers]
        rows.extend(plans, 0, 0)
        least_bytes = 4 * matrix + size * (2 * state + 4 * setup.width + 4 * setup.vocabulary)
        entry: dict[str, float] = {
            "memory_limit_us": least_bytes / limits["copy_bytes_per_second"] * 1e6,
            "product_limit_us": 2 * matrix * size / limits["fp32_flops"] * 1e6,
        }
        with torch.inference_mode():
            for title, kind in {"step": None, "draw": Kind(), "draw_top_p": Kind(truncated=True)}.items():
                run = rows._ready(kind)
                entry[f"{title}_us"] = device_time(run, 10) * 1e6
        seconds = statistics.median(_wall(lambda plans=plans: rows.extend(plans, 0, 0)) for _ in range(7))  # type: ignore[misc]
        entry["plan_us_per_step"] = seconds / rows.steps * 1e6
        entry["tokens_per_second"] = size * rows.steps / seconds
        limit = max(entry["memory_limit_us"], entry["product_limit_us"])
        entry["share_of_roofline"] = limit / (entry["step_us"] + entry["draw_us"])
        found[str(size)] = entry
        shown = {key: round(value, 3) for key, value in entry.items()}
        print(f"  {name}, block {setup.block}, {size} rows:", shown, flush=True)
    return found


def profile(setup: Setup) -> list[str]:
    """The kernels of a step and a draw of one block."""
    bench = Bench("lstm", setup.block, setup)
    rows = bench.rows
    rows.add(bench.initial, Rule())
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if setup.device == "cuda" else []
    with torch.inference_mode():
        runs = [rows._ready(None), rows._ready(Kind()), rows._ready(Kind(truncated=True))]
        lines: list[str] = []
        for title, run in zip(("step", "draw", "draw with top-p"), runs, strict=True):
            run()
            with torch.profiler.profile(activities=activities) as watched:
                run()
                if setup.device == "cuda":
                    torch.cuda.synchronize()
            events = [one for one in watched.key_averages() if getattr(one, "device_time_total", 0)]
            events.sort(key=lambda one: -one.device_time_total)
            lines.append(f"{title}: {sum(one.count for one in events)} kernels")
            lines += [f"  {one.device_time_total:8.1f} us {one.count:3d} x {one.key[:90]}" for one in events[:14]]
    print("\n".join(lines), flush=True)
    return lines


def peers(setup: Setup, seconds: float, sizes: Sequence[int]) -> dict[str, Any]:
    """`generate` of transformers for models of as many parameters."""
    from benchmarks.serving.transformers_peer import NEW, PROMPT, build

    found: dict[str, Any] = {}
    for kind in ("gpt2", "mamba"):
        torch.manual_seed(0)
        model = build(kind).eval().to(setup.device)
        options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": True, "top_k": 0, "pad_token_id": 0}
        for rows in sizes:
            with torch.inference_mode():
                prompt = torch.randint(1, 10_000, (rows, PROMPT), device=setup.device)
                mask = torch.ones_like(prompt)
                model.generate(prompt, attention_mask=mask, **options)
                began, tokens = time.perf_counter(), 0
                while time.perf_counter() - began < seconds:
                    tokens += rows * NEW
                    model.generate(prompt, attention_mask=mask, **options)[0, 0].item()
                speed = tokens / (time.perf_counter() - began)
            found[f"{kind}, {rows} rows"] = speed
            print(f"  transformers {kind}, {rows} rows: {speed:,.0f} tokens/s", flush=True)
    return found


def streams_of(name: str, setup: Setup, sizes: Sequence[int], seconds: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    bench = Bench(name, max(sizes), setup)
    print(f"  {name}: {bench.rows.name}, on {device_of(bench.model)}", flush=True)
    for size in sizes:
        found[str(size)] = served(bench, size, seconds)
        print(
            f"  {name}, {size} streams:", {key: round(value, 2) for key, value in found[str(size)].items()}, flush=True
        )
    first, last = (found[str(size)]["tokens_per_second"] for size in (min(sizes), max(sizes)))
    found["speed_up"] = last / first
    print(f"  {name}: {max(sizes)} streams have {last / first:.1f} times the tokens/s of {min(sizes)}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="few texts and streams, to try the script on a CPU")
    parser.add_argument("--only", nargs="*", default=[], help="names of parts")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    quick, began = options.quick, time.perf_counter()
    setup = Setup(device, 500, 32, 4) if quick else Setup(device)
    sizes = (1, 4) if quick else (1, 8, 64, 256, 1024)
    seconds, texts, most = (0.5, 6, 8) if quick else (2.5, 200, 1024)
    limits: dict[str, float] = {"copy_bytes_per_second": 4.3e12, "fp32_flops": 5e13}  # until they are measured
    small = {"size": 256, "mb": 8} if quick else {}

    def measured_ceilings() -> dict[str, float]:
        limits.update(ceilings(setup, **small))
        print("  ", {key: f"{value:.3g}" for key, value in limits.items()}, flush=True)
        return limits

    parts: dict[str, Callable[[], Any]] = {
        "ceilings": measured_ceilings,
        "same texts, lstm": lambda: same_texts("lstm", texts, most, setup),
        "streams, lstm": lambda: streams_of("lstm", setup, sizes, seconds),
        "steps, lstm": lambda: steps("lstm", setup, limits, sizes),
        "profile": lambda: profile(setup),
    }
    few, quarter = max(texts // 4, 6), most // 4
    for name in ("gru", "mamba", "attention"):
        parts[f"same texts, {name}"] = partial(same_texts, name, few, quarter, setup)
        parts[f"streams, {name}"] = partial(streams_of, name, setup, (1, most), seconds)
    for block in (8,) if quick else (32, 128, 256, 1024):
        other = setup._replace(block=block)
        parts[f"steps, blocks of {block}"] = partial(steps, "lstm", other, limits, (1, most))
        if block == 256:
            parts["same texts, blocks of 256"] = partial(same_texts, "lstm", few, most, other)
    parts["transformers"] = lambda: peers(setup, seconds, (1, 2) if quick else (1, 64, 1024))
    results: dict[str, Any] = {}
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{time.strftime('%Y-%m-%d')}-serving-rows-{'gpu' if device == 'cuda' else 'cpu'}.json"
    for title, part in parts.items():
        if options.only and title not in options.only:
            continue
        print(f"[{time.perf_counter() - began:5.1f} s] {title}", flush=True)
        try:
            results[title] = part()
        except Exception as problem:  # the other parts run
            traceback.print_exc(limit=-6)
            results[title] = {"error": f"{type(problem).__name__}: {problem}"[:500]}
        if device == "cuda":
            torch.cuda.empty_cache()
        document = {"machine": machine(), "block": BLOCK, "results": results}
        path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"[{time.perf_counter() - began:5.1f} s] wrote {path}")


if __name__ == "__main__":
    main()
