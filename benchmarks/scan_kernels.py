"""Linear scans and Newton iteration on a GPU; each is checked for correctness in the same run before it is timed.

- the linear scan against a copy of the same bytes (memory bandwidth), torch, and torch's associative_scan
- Newton iteration against the default implementation, with iterations and residual

Times are medians of CUDA events over interleaved rounds. A failing case is recorded and skipped.
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
from torch import Tensor

from benchmarks.reporting import write
from elman.cells import CELLS
from elman.ops import kernel_timeout, scan
from elman.ops.forms import using
from elman.ops.state import tensors
from elman.recurrence import choose, newton, recur

Variants = dict[str, Callable[[], Any]]
ROUNDS = 30
SECONDS = 55.0  # for all parts; what does not fit is left out and said
AHEAD = 1_000_000  # cycles that the device sleeps before each run, so that the launches of the host are not timed
SCAN = (8, 4096, 1536)
SCAN_PLANS: dict[str, list[tuple[Any, ...]]] = {  # channels, steps at once, warps, registers
    "forward": [
        (32, 64, 1, 152),
        (128, 64, 4, 168),
        (32, 64, 1, None),
        (32, 32, 1, 96),
        (128, 32, 4, 96),
    ],
    "backward": [
        (32, 32, 1, 152),
        (128, 32, 4, 168),
        (32, 32, 1, None),
        (32, 16, 1, 96),
    ],
}
WINDOWS = (1, 4, 16, 32)  # stretches, at most


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
        with _set(**{{"forward": "PLAN", "backward": "BACK"}[way]: scan.kernel.LaunchConfig(*plan)}):
            try:
                walk()
                kernel_timeout.check(made[0].device, wait=True)
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
                if late():
                    return results
    return results


def measure(rounds: int) -> dict[str, Any]:
    assert rounds <= ROUNDS
    return in_parts("scan-kernels", {"linear_scans": linear_scans, "newtons": newtons})


def in_parts(name: str, parts: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Runs the parts; results are written to the folder $OUT after each, so that a later failure loses nothing."""
    global _began  # noqa: PLW0603
    _began = time.perf_counter()
    torch.backends.cuda.matmul.allow_tf32 = False
    results: dict[str, Any] = {"seconds": {}}
    for title, part in parts.items():
        began = time.perf_counter()
        if late():
            results[title] = "left out: out of time"
            continue
        print(f"\n{title}", flush=True)
        try:
            results[title] = part()
        except Exception as failure:
            traceback.print_exc()
            results[title] = f"failed: {type(failure).__name__}: {failure}"
        torch.cuda.empty_cache()
        results["seconds"][title] = time.perf_counter() - began
        if "OUT" in os.environ:
            write(name, results, Path(os.environ["OUT"]))
    return results


_began = 0.0


def late() -> bool:
    """Whether the time for all parts is over."""
    if time.perf_counter() - _began < SECONDS:
        return False
    print("out of time: what follows is left out", flush=True)
    return True
