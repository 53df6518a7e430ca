"""Generated recurrence kernels on a GPU: first whether they are right, then how fast, beside torch's own and our loop.

    python -m elman.bench.recurrence [--minutes 5] [--only lstm]      only some

Cases are checked in parallel processes, which also compiles them all; then timed one after another in one process, in
rounds that take turns, by events of the device: medians of at least 30. A case that fails is reported and the next one
goes on; a kernel that hangs is ended by its own patience. Results go to $OUT if set, else to benchmarks/results.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elman.bench.harness import machine, write
from elman.cells import CELLS, Cell
from elman.ops.recurrence import generated, kernel, recur, using
from elman.ops.recurrence.generated import dividing
from elman.ops.recurrence.partition import Partition, candidates, cost
from elman.ops.recurrence.reference import run as loop

KINDS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
LSTM = [(64, 512, 256), (64, 512, 768), (64, 512, 512), (32, 1024, 1024), (16, 2048, 512)]
CELL_SHAPE = (64, 512, 512)
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("gru", {}),
    ("layernorm-lstm", {}),
    ("gru", {"reset": "before"}),
    ("peephole", {}),
    ("peephole", {"form": "full"}),
    ("coupled", {}),
    ("rnn", {}),
    ("gated", {}),
    ("residual", {}),
    ("swinging", {}),
]
ODD = [(20, 256, 650), (20, 256, 1150), (1, 1024, 512), (7, 512, 512), (32, 512, 200)]
SWEPT = [("lstm", (64, 512, 256)), ("lstm", (64, 512, 768)), ("lstm", (32, 1024, 1024)), ("gru", (64, 512, 512))]
REPEATS = 30


class Swinging(Cell):
    """A cell that no library has: two states that turn round each other, gated."""

    name = "swinging"

    def __init__(self, config: Cell.Config, input_size: int):
        super().__init__(config, input_size)
        self.from_input = nn.Linear(input_size, 3 * self.hidden_size)
        self.from_past = nn.Linear(self.hidden_size, 3 * self.hidden_size, bias=False)
        self.angle = nn.Parameter(torch.rand(self.hidden_size))

    def initial_state(self, batch: int) -> tuple[Tensor, Tensor]:
        return self.zeros(batch), self.zeros(batch)

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        here, there = state
        keep, push, show = (drive + self.from_past(here.to(drive.dtype))).chunk(3, -1)
        cosine, sine = torch.cos(self.angle), torch.sin(self.angle)
        keep = torch.sigmoid(keep)
        new = keep * (cosine * here - sine * there) + (1 - keep) * torch.tanh(push)
        other = keep * (sine * here + cosine * there)
        return torch.sigmoid(show) * new, (new, other)


def build(name: str, settings: dict[str, Any], size: int, kind: torch.dtype) -> Cell:
    torch.manual_seed(0)
    made: Any = Swinging if name == "swinging" else CELLS[name]
    return made(made.Config(hidden_size=size, **settings), size).cuda().to(kind)


def parts_of(state: Any) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else list(state)


# whether it is right


def gradients(cell: Cell, run: Callable[..., Any], x: Tensor, lengths: Tensor | None) -> list[Tensor]:
    """Outputs, last state and gradients, in float64."""
    cell.zero_grad()
    x = x.to(next(cell.parameters()).dtype).requires_grad_()
    outputs, state = run(cell, x, cell.initial_state(len(x)), lengths)
    if lengths is not None:
        outputs = outputs * (torch.arange(x.shape[1], device="cuda") < lengths.unsqueeze(1)).unsqueeze(-1)
    weight = torch.linspace(-1, 1, outputs[0].numel(), device="cuda").view_as(outputs[0])
    loss = (outputs.float() * weight).sum() + sum(part.float().square().sum() for part in parts_of(state))
    loss.backward()
    found = [outputs, *parts_of(state), x.grad, *(p.grad for p in cell.parameters() if p.grad is not None)]
    return [one.detach().double() for one in found]


def error(found: list[Tensor], expected: list[Tensor]) -> float:
    """The largest of all relative errors."""
    return max(float((a - b).norm() / b.norm().clamp(min=1e-30)) for a, b in zip(found, expected, strict=True))


def check(job: dict[str, Any]) -> dict[str, Any]:
    """Our error beside that of torch's kernel, or else of the plain loop, in the same dtype."""
    torch.set_float32_matmul_precision(job.get("precision", "highest"))
    batch, length, size = job["shape"]
    kind = KINDS[job["kind"]]
    cell = build(job["name"], job["settings"], size, kind)
    exact = build(job["name"], job["settings"], size, kind).double()
    x = torch.randn(batch, length, size, device="cuda").to(kind)
    lengths = torch.randint(0, length + 1, (batch,), device="cuda") if job.get("ragged") else None
    expected = gradients(exact, loop, x, lengths)
    given = {name: Partition(**part) for name, part in job.get("partitions", {}).items()}
    began = time.perf_counter()
    with using("generated"), dividing(**given):
        ours = error(gradients(cell, recur, x, lengths), expected)
    first = time.perf_counter() - began
    kernel.check(torch.device("cuda", 0), wait=True)
    other = "reference" if isinstance(cell.vendor(), str) else "vendor"
    with using(other):
        theirs = error(gradients(cell, recur, x, lengths), expected)
    made: Any = generated.plan(cell, lengths is not None)
    chosen = {way: asdict(made.division(way, batch, kind, x.device)) for way in ("forward", "backward")}
    right = ours <= 1.5 * theirs + 1e-6
    return {"error": ours, other: theirs, "right": right, "first_call_s": first, "chosen": chosen}


def checks() -> list[dict[str, Any]]:
    """Small lengths at the very sizes that are timed, so that everything is compiled when the clock starts."""
    jobs: list[dict[str, Any]] = []

    def add(name: str, shape: tuple[int, int, int], kind: str = "bf16", settings: Any = None, **more: Any) -> None:
        jobs.append({"name": name, "shape": (shape[0], 48, shape[2]), "kind": kind, "settings": settings or {}, **more})

    for shape in LSTM:
        add("lstm", shape)
    for name, settings in VARIANTS:
        add(name, CELL_SHAPE, settings=settings)
    for name, shape in SWEPT:
        for part in swept(name, shape):
            add(name, shape, partitions={"forward": part, "backward": part})
    for shape in ODD:
        add("lstm", shape)
    add("lstm", (64, 512, 512), ragged=True)
    for kind in ("fp16", "fp32"):
        for shape in LSTM[:3]:
            add("lstm", shape, kind, precision="high")
    add("lstm", (64, 512, 256), "fp32")
    for name, settings in [("lstm", {}), *VARIANTS]:
        add(name, (7, 48, 100), "fp32", settings)
        add(name, (7, 48, 100), "fp32", settings, ragged=True)
    return jobs


def swept(name: str, shape: tuple[int, int, int]) -> list[dict[str, Any]]:
    """Divisions to try besides the chosen one."""
    batch, _, size = shape
    kind: Any = CELLS[name]
    made: Any = generated.plan(kind(kind.Config(hidden_size=size), size))
    found: list[dict[str, Any]] = []
    fitting = candidates(made.step, batch, 2, 132, budget=200 * 1024)
    for one in sorted(fitting, key=lambda one: cost(made.step, one, 2))[:2]:
        for warps, split in ((4, 1), (4, 4), (8, 8)):
            chunk = max(16 * split, one.chunk)
            found.append({"rows": one.rows, "units": one.units, "warps": warps, "split": split, "chunk": chunk})
    if shape == SWEPT[0][1]:
        found.append({**found[1], "poll": "atomic"})
    return found


# how fast it is


def timed(variants: dict[str, Callable[[], Any]], length: int) -> dict[str, Any]:
    """Microseconds for each step: median and quartiles, in rounds that take turns; an error is told as one."""
    found: dict[str, Any] = {}
    going = {}
    for name, run in variants.items():
        try:
            for _ in range(3):
                run()
            torch.cuda.synchronize()
            kernel.check(torch.device("cuda", 0), wait=True)
            going[name] = run
        except Exception as problem:
            found[name] = f"{type(problem).__name__}: {str(problem)[:300]}"
    spans: dict[str, list[float]] = {name: [] for name in going}
    for _ in range(REPEATS):
        for name, run in going.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            run()
            end.record()
            torch.cuda.synchronize()
            spans[name].append(begin.elapsed_time(end) * 1e3 / length)
    for name, own in spans.items():
        low, middle, high = statistics.quantiles(own, n=4)
        found[name] = {"us": round(middle, 3), "low": round(low, 3), "high": round(high, 3)}
    return found


def passes(forward: Callable[[], Tensor], leaves: list[Tensor]) -> dict[str, Callable[[], Any]]:
    def infer() -> None:
        with torch.no_grad():
            forward()

    def train() -> None:
        for leaf in leaves:
            leaf.grad = None
        outputs = forward()
        outputs.backward(torch.ones_like(outputs))

    return {"forward": infer, "training": train}


def ours(
    name: str, settings: dict[str, Any], size: int, kind: torch.dtype, x: Tensor, form: str = "generated", **more: Any
) -> dict[str, Callable[[], Any]]:
    cell = build(name, settings, size, kind)
    x = x.to(kind).requires_grad_()
    state = cell.initial_state(len(x))
    given = {key: Partition(**part) for key, part in more.get("partitions", {}).items()}

    def forward() -> Tensor:
        with using(form), dividing(**given):
            if more.get("both_ways"):
                ahead, _ = generated.run(cell, x, state, None)
                back, _ = generated.run(cell, x, state, None, down=True)
                return torch.cat([ahead, back], -1)
            outputs, _ = recur(cell, x, state, more.get("lengths"))
            for _ in range(1, more.get("layers", 1)):
                outputs, _ = recur(cell, outputs, state)
            return outputs

    return passes(forward, [x, *cell.parameters()])


def torchs(name: str, size: int, kind: torch.dtype, x: Tensor, **options: Any) -> dict[str, Callable[[], Any]]:
    lengths = options.pop("lengths", None)
    module = getattr(nn, name)(size, size, batch_first=True, device="cuda", dtype=kind, **options)
    x = x.to(kind).requires_grad_()

    def forward() -> Tensor:
        if lengths is None:
            return module(x)[0]
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return module(packed)[0].data

    return passes(forward, [x, *module.parameters()])


def captured(runs: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    """The same under CUDA graphs, which spare the host's work."""
    found = {}
    for name, run in runs.items():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        found[name] = graph.replay
    return found


def timings() -> Iterator[tuple[str, int, Callable[[], dict[str, dict[str, Callable[[], Any]]]]]]:
    """What is timed: a title, the number of steps, and what makes the variants; the most telling first."""

    def inputs(shape: tuple[int, int, int]) -> Tensor:
        torch.manual_seed(1)
        return torch.randn(shape, device="cuda")

    def lstm(shape: tuple[int, int, int], kinds: tuple[str, ...] = ("bf16",), **options: Any) -> Any:
        x, size = inputs(shape), shape[2]
        more = {key: options[key] for key in ("layers", "both_ways", "lengths") if key in options}
        theirs = {"num_layers": options.get("layers", 1), "bidirectional": options.get("both_ways", False)}
        theirs |= {"lengths": options["lengths"].cpu()} if "lengths" in options else {}
        found = {f"ours {kind}": ours("lstm", {}, size, KINDS[kind], x, **more) for kind in kinds}
        return found | {f"torch {kind}": torchs("LSTM", size, KINDS[kind], x, **theirs) for kind in KINDS}

    def variant(name: str, settings: dict[str, Any]) -> Any:
        x, size = inputs(CELL_SHAPE), CELL_SHAPE[2]
        short = x[:, :64].contiguous()
        found = {"ours bf16": ours(name, settings, size, torch.bfloat16, x)}
        found["torch GRU bf16"] = torchs("GRU", size, torch.bfloat16, x)
        try:
            slow = captured(ours(name, settings, size, torch.bfloat16, short, form="reference"))
            found["our loop, captured (64 steps)"] = slow
        except Exception as problem:
            print(f"  not captured: {str(problem)[:200]}", flush=True)
        return found

    def sweep(name: str, shape: tuple[int, int, int]) -> Any:
        x = inputs(shape)
        return {
            json.dumps(part): ours(
                name, {}, shape[2], torch.bfloat16, x, partitions={"forward": part, "backward": part}
            )
            for part in swept(name, shape)
        }

    for shape in LSTM:
        yield f"lstm {shape}", shape[1], partial(lstm, shape, ("bf16", "fp16", "fp32"))
    for name, settings in VARIANTS[:3]:
        yield f"{name} {settings} {CELL_SHAPE}", CELL_SHAPE[1], partial(variant, name, settings)
    for name, shape in SWEPT[:2]:
        yield f"sweep {name} {shape}", shape[1], partial(sweep, name, shape)
    for shape in ODD:
        yield f"lstm {shape}", shape[1], partial(lstm, shape)
    for name, settings in VARIANTS[3:]:
        yield f"{name} {settings} {CELL_SHAPE}", CELL_SHAPE[1], partial(variant, name, settings)
    shape = (64, 512, 512)
    lengths = torch.randint(128, 513, (64,), generator=torch.Generator().manual_seed(0))
    yield f"lstm two layers {shape}", 512, lambda: lstm(shape, layers=2)
    yield f"lstm both ways {shape}", 512, lambda: lstm(shape, both_ways=True)
    yield f"lstm ragged {shape}", 512, lambda: lstm(shape, lengths=lengths.cuda())
    for name, shape in SWEPT[2:]:
        yield f"sweep {name} {shape}", shape[1], partial(sweep, name, shape)


def clock(skip: int, only: str) -> None:
    """Times all cases from number `skip` on; a line of JSON for each. A broken device ends the process."""
    torch.set_float32_matmul_precision("high")
    for number, (title, length, make) in enumerate(timings()):
        if number < skip or only not in title:
            continue
        began = time.perf_counter()
        row: dict[str, Any] = {"number": number, "title": title}
        try:
            variants = make()
            for way in ("forward", "training"):
                runs = {name: both[way] for name, both in variants.items()}
                captured_steps = {name: 64 for name in runs if "64 steps" in name}
                row[way] = timed(runs, length)
                for name, steps in captured_steps.items():
                    if isinstance(row[way].get(name), dict):
                        row[way][name] = {key: round(us * length / steps, 3) for key, us in row[way][name].items()}
        except Exception as problem:
            row["failed"] = f"{type(problem).__name__}: {str(problem)[:500]}"
        row["took_s"] = round(time.perf_counter() - began, 1)
        print(json.dumps(row), flush=True)
        torch.cuda.empty_cache()
        torch.cuda.synchronize()


# all of it


def lines(arguments: list[str], limit: float) -> list[dict[str, Any]]:
    """What a process of ours prints as JSON before it ends or its time is over."""
    command = [sys.executable, "-m", "elman.bench.recurrence", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, complaint = process.communicate(timeout=max(limit, 1))
    except subprocess.TimeoutExpired:
        process.kill()
        output, complaint = process.communicate()
        complaint = "out of time"
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    if process.returncode:
        found.append({"failed": complaint.strip()[-400:], "returncode": process.returncode})
    return found


def main(minutes: float, only: str) -> dict[str, Any]:
    began = time.monotonic()

    def left() -> float:
        return 60 * minutes - (time.monotonic() - began)

    jobs = [job for job in checks() if only in job["name"]]
    with ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 2) - 2)) as pool:
        share = 0.45 * 60 * minutes

        def checked(some: list[dict[str, Any]]) -> list[dict[str, Any]]:
            room = share - (time.monotonic() - began)
            found = lines(["--jobs", json.dumps(some)], room) if room > 10 else []
            found += [{"failed": "it or one before it took the process or its time"}] * (len(some) - len(found))
            rows = [{**job, **result} for job, result in zip(some, found, strict=False)]
            for row in rows:
                verdict = "right" if row.get("right") else "WRONG" if "error" in row else "FAILED"
                print(verdict, json.dumps(row), flush=True)
            return rows

        together = [jobs[start : start + 3] for start in range(0, len(jobs), 3)]  # importing takes as long as a case
        correct = [row for rows in pool.map(checked, together) for row in rows]
    results: dict[str, Any] = {"correct": correct, "times": []}
    save(results)
    skip = 0
    while left() > 10:
        rows = lines(["--clock", str(skip), "--only", only], left())
        for row in rows:
            print(json.dumps(row), flush=True)
        results["times"] += rows
        save(results)
        done = [row["number"] for row in rows if "number" in row]
        if not rows or "returncode" not in rows[-1]:
            break
        skip = (done[-1] + 1 if done else skip) + 1
    return results


def measure(rounds: int) -> dict[str, Any]:
    """All cases; `rounds` is what they have at least, in the time there is."""
    assert rounds <= REPEATS
    return main(5.0, "")


def save(results: dict[str, Any]) -> None:
    out = os.environ.get("OUT")
    if out:
        Path(out, "recurrence.json").write_text(json.dumps({"machine": machine(), "results": results}, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", help="check these cases")
    parser.add_argument("--clock", type=int, help="time all cases from this number on")
    options = parser.parse_args()
    if options.jobs:
        for one in json.loads(options.jobs):
            try:
                print(json.dumps(check(one)), flush=True)
            except Exception as problem:
                print(json.dumps({"failed": f"{type(problem).__name__}: {str(problem)[:500]}"}), flush=True)
    elif options.clock is not None:
        clock(options.clock, options.only)
    else:
        everything = main(options.minutes, options.only)
        if not os.environ.get("OUT"):
            print(f"wrote {write('recurrence', everything)}")
