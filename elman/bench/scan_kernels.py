"""Scans, the Mamba layer and Newton iteration on a GPU; nothing is timed that has not been found right in the same run.

- the linear scan beside the time in which a copy moves the same bytes, the torch form, and torch's associative_scan
- the selective scan in several layouts, and a Mamba layer's training step beside the torch form and fused attention
- Newton iteration beside the form that would be taken, with iterations and residual

Times are medians by device events, variants taking turns. A case that fails is reported and left.
"""

import os
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elman.bench.harness import write
from elman.cells import CELLS
from elman.layers import LAYERS
from elman.ops import alarm, scan, selective
from elman.ops.forms import using
from elman.ops.recurrence import choose, newton, recur
from elman.ops.state import tensors

Variants = dict[str, Callable[[], Any]]
ROUNDS = 30
SECONDS = 170.0  # for all of it; what does not fit is left out and said
AHEAD = 1_000_000  # cycles that the device sleeps before each run, so that the launches of the host are not timed
SCAN = (8, 4096, 1536)
SCAN_PLANS: dict[str, list[tuple[Any, ...]]] = {  # walk, channels, steps at once, warps, depth, registers
    "forward": [
        ("lookback", 32, 64, 1, 1, 152),
        ("lookback", 128, 64, 4, 1, 168),
        ("lookback", 32, 64, 1, 1, None),
        ("lookback", 32, 32, 1, 1, 96),
        ("lookback", 128, 32, 4, 1, 96),
        ("tiles", 32, 16, 1, 4),
    ],
    "backward": [
        ("lookback", 32, 32, 1, 1, 152),
        ("lookback", 128, 32, 4, 1, 168),
        ("lookback", 32, 32, 1, 1, None),
        ("lookback", 32, 16, 1, 1, 96),
        ("tiles", 32, 8, 1, 8),
    ],
}
WINDOWS = (1, 4, 16, 32)  # stretches, at most
SELECTIVE_PLANS = [(32, 32, 4), (32, 32, 8), (64, 16, 4), (64, 32, 8), (16, 32, 2), (128, 8, 4)]
WIDTH, TOKENS, LENGTHS = 512, 32768, (256, 512, 1024, 2048, 4096, 8192, 16384)


def timed(variants: Variants, rounds: int = ROUNDS, ahead: int = AHEAD) -> dict[str, dict[str, float]]:
    """Median, quartiles and count of each one's milliseconds; the first call, which compiles, apart."""
    found: dict[str, list[float]] = {}
    first: dict[str, float] = {}
    for name, run in variants.items():
        began = time.perf_counter()
        try:
            run()
            torch.cuda.synchronize()
        except Exception as error:  # one variant must not end the others
            print(f"  {name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        found[name], first[name] = [], time.perf_counter() - began
    for _ in range(rounds):
        for name, times in found.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            if ahead:
                torch.cuda._sleep(ahead)
            start.record()
            variants[name]()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
    table = {}
    for name, times in found.items():
        low, middle, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
        table[name] = {"ms": middle, "low": low, "high": high, "rounds": len(times), "first_s": first[name]}
        print(f"  {name:<44} {middle:9.3f} ms  ({low:.3f} to {high:.3f})", flush=True)
    return table


def error(found: Tensor, exact: Tensor) -> float:
    return ((found - exact).abs().max() / exact.abs().max()).item()


def trained(run: Callable[..., tuple[Tensor, Tensor]], leaves: list[Tensor], **options: Any) -> list[Tensor]:
    """Values and gradients."""
    leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    values = run(*leaves, **options)
    torch.stack([(value**2).sum() for value in values]).sum().backward()
    return [*(value.detach() for value in values), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def scan_inputs(shape: tuple[int, ...], kind: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    draw = [torch.randn(form, device="cuda", generator=generator) for form in (shape, shape, (shape[0], *shape[2:]))]
    return [draw[0].sigmoid().to(kind), draw[1].to(kind), draw[2]]


def scan_is_right() -> dict[str, float]:
    """Relative errors against the definition in float64, the torch form's beside them."""
    errors: dict[str, float] = {}
    for shape in ((8, 700, 96), (1, 2100, 7), (3, 33, 130), (80, 200, 128)):
        for reverse in (False, True)[: 2 if shape[0] == 8 else 1]:  # each of these is compiled
            leaves = scan_inputs(shape)
            exact = trained(scan.linear_scan_reference, [leaf.double() for leaf in leaves], reverse=reverse)
            for name, form in {"kernel": scan.linear_scan_kernel, "torch": scan.linear_scan_chunked}.items():
                worst = max(map(error, trained(form, leaves, reverse=reverse), exact))
                errors[name] = max(errors.get(name, 0.0), worst)
    assert errors["kernel"] < 1e-4, errors
    return errors


def copy_limit(numbers: int) -> float:
    """Milliseconds in which a copy moves this many float32 numbers (each read or written counts)."""
    a, b = (torch.empty(2**28, device="cuda") for _ in range(2))
    table = timed({"copy of 1 GiB": lambda: b.copy_(a)}, rounds=20)
    return table["copy of 1 GiB"]["ms"] * numbers / (2 * 2**28)


def linear_scans() -> dict[str, Any]:
    results: dict[str, Any] = {"errors": scan_is_right()}
    decay, inputs, initial = scan_inputs(SCAN)
    one = decay.numel()
    limit = copy_limit(one)
    results["copy_ms"] = {"forward": 3 * limit, "backward": 5 * limit}
    history, given, nothing = torch.empty_like(inputs), torch.randn_like(inputs), torch.zeros_like(initial)
    scan.kernel.walk(decay, inputs, initial, history)
    made = [torch.ones_like(inputs) for _ in range(2)]
    back: dict[str, Any] = {"down": True, "late": True, "earlier": history, "products": made[1]}
    ways: Variants = {
        "forward": lambda: scan.kernel.walk(decay, inputs, initial, made[0]),
        "backward": lambda: scan.kernel.walk(decay, given, nothing, made[0], **back),
    }
    for way, walk in ways.items():
        results[way] = table = _plans(way, walk, made)
        best = min(table, key=lambda name: table[name]["ms"])
        share = results[f"{way}_share_of_copy"] = results["copy_ms"][way] / table[best]["ms"]
        print(f"  {way}: best {best}, {share:.2f} of the copy's speed", flush=True)
    results["windows"] = {}
    for widest in WINDOWS:  # whether passing states on is what takes the time
        with _set(WIDEST=widest, PASSED=2**62):
            results["windows"] |= timed({f"windows of {widest}": ways["forward"]}, rounds=10)
    half = scan_inputs(SCAN, torch.bfloat16)
    results["peers"] = timed(
        {
            "three streams by torch.add": lambda: torch.add(decay, inputs, out=history),
            "kernel": lambda: scan.linear_scan_kernel(decay, inputs, initial),
            "kernel, bf16 inputs": lambda: scan.linear_scan_kernel(half[0], half[1], half[2]),
            "chunked torch form": lambda: scan.linear_scan_chunked(decay, inputs, initial),
            "torch associative_scan, compiled": _associative(decay, inputs),
        },
        rounds=10,
    )
    results["few channels"] = {}
    for shape in ((1, 65536, 256), (1, 16384, 64), (64, 512, 768)):
        a, b, c = scan_inputs(shape)
        pair: Variants = {
            f"{shape} kernel": partial(scan.linear_scan_kernel, a, b, c),
            f"{shape} chunked": partial(scan.linear_scan_chunked, a, b, c),
        }
        results["few channels"] |= timed(pair, rounds=10)
        for widest in WINDOWS:
            with _set(WIDEST=widest):
                results["few channels"] |= timed(
                    {f"{shape} windows of {widest} or less": pair[f"{shape} kernel"]}, rounds=10
                )
    return results


def _plans(way: str, walk: Callable[[], Any], made: list[Tensor]) -> dict[str, dict[str, float]]:
    """Times of all plans that make what the first one makes, which was found right before."""
    table: dict[str, dict[str, float]] = {}
    expected: list[Tensor] = []
    for plan in SCAN_PLANS[way]:
        with _set(**{{"forward": "PLAN", "backward": "BACK"}[way]: scan.kernel.Plan(*plan)}):
            try:
                walk()
                alarm.check(made[0].device, wait=True)
            except Exception as failure:
                print(f"  {plan}: {type(failure).__name__}: {str(failure)[:200]}", flush=True)
                continue
            expected = expected or [part.clone() for part in made]
            worst = max(map(error, made, expected))
            if not worst < 1e-5:
                print(f"  {plan}: differs by {worst:.1e}", flush=True)
                continue
            table |= timed({str(plan): walk})
    return table


@contextmanager
def _set(**settings: Any) -> Iterator[None]:
    """Settings of the linear scan's kernel, for a while."""
    before = {name: getattr(scan.kernel, name) for name in settings}
    try:
        for name, value in settings.items():
            setattr(scan.kernel, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(scan.kernel, name, value)


def _associative(decay: Tensor, inputs: Tensor) -> Callable[[], Any]:
    from torch._higher_order_ops.associative_scan import associative_scan

    def follow(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return a[0] * b[0], b[0] * a[1] + b[1]

    whole = torch.compile(lambda a, b: associative_scan(follow, (a, b), 1, combine_mode="pointwise"))
    return lambda: whole(decay, inputs)


def selective_scans() -> dict[str, Any]:
    def draw(batch: int, steps: int, channels: int, size: int = 16) -> list[Tensor]:
        along, chosen = (batch, steps, channels), (batch, steps, size)
        x, delta, write, read = (torch.randn(shape, device="cuda") for shape in (along, along, chosen, chosen))
        rate = -torch.rand(channels, size, device="cuda") - 0.1
        initial = torch.randn(batch, channels, size, device="cuda")
        return [x, F.softplus(delta - 3), write, read, rate, initial, torch.randn(channels, device="cuda"), x.flip(0)]

    def running(form: Callable[..., Any]) -> Callable[..., tuple[Tensor, Tensor]]:
        return lambda x, delta, write, read, rate, initial, skip, gate: form(
            x, selective.Selection(delta, write, read), rate, initial, skip, gate
        )

    results: dict[str, Any] = {"forward": {}, "forward and backward": {}, "errors": {}}
    small, large = draw(2, 515, 72), draw(8, 4096, 1536)
    exact = trained(running(selective.chunked.reference), [leaf.double() for leaf in small])
    leaves = [leaf.requires_grad_() for leaf in large]
    weights = torch.randn_like(large[0])
    before = selective.kernel.PLAN
    for plan in SELECTIVE_PLANS:
        selective.kernel.PLAN = selective.kernel.Plan(*plan)
        try:
            worst = max(map(error, trained(running(selective.kernel.run), small), exact))
        except Exception as failure:
            print(f"  {plan}: {type(failure).__name__}: {str(failure)[:200]}", flush=True)
            continue
        results["errors"][str(plan)] = worst
        if not worst < 1e-3:
            print(f"  {plan}: wrong, {worst:.1e}", flush=True)
            continue

        def forward() -> None:
            with torch.no_grad():
                running(selective.kernel.run)(*leaves)

        both = lambda: running(selective.kernel.run)(*leaves)[0].backward(weights)  # noqa: E731
        results["forward"] |= timed({str(plan): forward}, rounds=10)
        results["forward and backward"] |= timed({f"{plan} both": both}, rounds=10)
    selective.kernel.PLAN = before
    torch_form = {"torch form, both": lambda: running(selective.chunked.run)(*leaves)[0].backward(weights)}
    results["forward and backward"] |= timed(torch_form, rounds=2)
    return results


class _Attention(nn.Module):
    """Fused causal attention with its two products: what a layer of the same width costs at the least."""

    def __init__(self, width: int, heads: int = 8):
        super().__init__()
        self.heads, self.enter, self.leave = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        query, key, value = self.enter(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        read = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.leave(read.transpose(1, 2).flatten(2)), None


def layers() -> dict[str, Any]:
    """A training step of one layer under bf16 autocast, at the same number of tokens for all lengths."""
    torch.manual_seed(0)
    kind: Any = LAYERS["mamba"]
    mamba, attention = kind(kind.Config(), WIDTH).cuda(), _Attention(WIDTH).cuda()
    results: dict[str, Any] = {"explained": mamba.explain(8, 1024)}
    for length in LENGTHS:
        x = torch.randn(TOKENS // length, length, WIDTH, device="cuda")

        def step(layer: nn.Module, x: Tensor = x) -> None:
            layer.zero_grad()
            with torch.autocast("cuda", torch.bfloat16):
                outputs = layer(x)[0]
            outputs.float().square().mean().backward()

        def in_torch(x: Tensor = x) -> None:
            with using("chunked"):
                step(mamba, x)

        print(f"length {length}", flush=True)
        variants: Variants = {"mamba": partial(step, mamba), "attention": partial(step, attention)}
        results[str(length)] = timed(variants, rounds=20, ahead=4 * AHEAD)
        if length in (256, 4096):
            results[str(length)] |= timed({"mamba, torch form": in_torch}, rounds=2)
    faster = [n for n in LENGTHS if results[str(n)]["mamba"]["ms"] < results[str(n)]["attention"]["ms"]]
    results["mamba is faster at lengths"] = faster
    print(f"  mamba is faster at lengths {faster}", flush=True)
    return results


def newtons() -> dict[str, Any]:
    """One row, as a function of length and width: where parallel in time might pay."""
    results: dict[str, Any] = {}
    for length in (1024, 4096, 16384):
        for size in (32, 128, 512):
            for name in ("gru", "lstm"):
                torch.manual_seed(0)
                cell = CELLS[name](CELLS[name].Config(hidden_size=size), size).cuda()
                x = torch.randn(1, length, size, device="cuda")
                state = cell.initial_state(1)

                def forward(form: str, cell: Any = cell, x: Tensor = x, state: Any = state) -> Any:
                    with torch.no_grad(), using(form):
                        return recur(cell, x, state)

                def both(form: str, cell: Any = cell, x: Tensor = x, state: Any = state) -> None:
                    with using(form):
                        recur(cell, x, state)[0].sum().backward()

                outputs, final = forward("newton")
                told: dict[str, Any] = {"states": str(newton.latest()["states"])}
                expected, _ = forward("auto")
                case = f"{name}, {length} steps, width {size}"
                print(f"{case}: {told['states']}, difference {error(outputs, expected):.1e}", flush=True)
                table = timed(
                    {
                        "sequential": partial(forward, "auto"),
                        "newton": partial(forward, "newton"),
                        "sequential, both": partial(both, "auto"),
                        "newton, both": partial(both, "newton"),
                    },
                    rounds=3,
                    ahead=0,
                )
                told |= {key: str(value) for key, value in newton.latest().items()}
                told |= {"parts": len(list(tensors(final))), "sequential form": str(choose(cell, x))}
                results[case] = {"told": told, "difference": error(outputs, expected), **table}
                if time.perf_counter() - _began > SECONDS:
                    print("out of time: the longer cases are left out", flush=True)
                    return results
    return results


_began = time.perf_counter()


def measure(rounds: int) -> dict[str, Any]:
    """Written after each part to the folder that OUT names, if any: what was found is kept whatever comes after."""
    assert rounds <= ROUNDS
    torch.backends.cuda.matmul.allow_tf32 = False
    results: dict[str, Any] = {"seconds": {}}
    for part in (linear_scans, selective_scans, layers, newtons):
        began = time.perf_counter()
        if began - _began > SECONDS:
            results[part.__name__] = "left out: out of time"
            continue
        print(f"\n{part.__name__}", flush=True)
        try:
            results[part.__name__] = part()
        except Exception as failure:
            traceback.print_exc()
            results[part.__name__] = f"failed: {type(failure).__name__}: {failure}"
        torch.cuda.empty_cache()
        results["seconds"][part.__name__] = time.perf_counter() - began
        if "OUT" in os.environ:
            write("scan-kernels", results, Path(os.environ["OUT"]))
    return results
