"""The Mamba layer and its kernels on a GPU; each is checked for correctness in the same run before it is timed.

- training step of one layer against fused attention by sequence length, and against torch; profile by kernel
- the short convolution in its implementations
- the selective scan in several tile layouts, and with time split into several numbers of segments
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.scan_kernels import AHEAD, Variants, error, in_parts, late, timed, trained
from elman.layers import LAYERS
from elman.ops import selective, short_convolution
from elman.ops.forms import using

PLANS = [(8, 8, 1, 2048), (8, 16, 1, 2048), (4, 16, 1, 2048), (8, 8, 1, 4096)]  # steps, channels, warps, programs
PROGRAMS = (1, 1024, 2048, 4096, 8192)  # the more, the more segments where rows are few
WIDTH, TOKENS, LENGTHS = 512, 32768, (256, 1024, 4096, 8192, 16384, 32768)
TORCH_LENGTHS = (256,)
NAME = 60  # characters of a kernel name shown
CLOSE = 1e-3  # relative to the largest element


def measure(rounds: int) -> dict[str, Any]:
    return in_parts(
        "mamba-kernels",
        {
            "layers": partial(layers, rounds),
            "profile": profile,
            "convolutions": partial(convolutions, rounds),
            "selective_scans": partial(selective_scans, rounds),
            "segments": partial(segments, rounds),
        },
    )


class _Attention(nn.Module):
    """Fused causal attention with input and output projection: the minimal attention layer of the same width."""

    def __init__(self, width: int, heads: int = 8):
        super().__init__()
        self.heads, self.enter, self.leave = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        query, key, value = self.enter(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        read = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.leave(read.transpose(1, 2).flatten(2)), None


def _mamba() -> Any:
    torch.manual_seed(0)
    kind: Any = LAYERS["mamba"]
    return kind(kind.Config(), WIDTH).cuda()


def _step(layer: nn.Module, x: Tensor, form: str = "auto") -> None:
    """One training step under bf16 autocast; `form` selects the implementation of operations that have it."""
    layer.zero_grad()
    with using(form):
        with torch.autocast("cuda", torch.bfloat16):
            outputs = layer(x)[0]
        outputs.float().square().mean().backward()


def layers(rounds: int) -> dict[str, Any]:
    """Same number of tokens at every length, so that only the cost of attention grows with length."""
    mamba, attention = _mamba(), _Attention(WIDTH).cuda()
    results: dict[str, Any] = {"explained": mamba.explain(8, 1024), "error": _layer_error(mamba)}
    print(f"  by itself the layer takes {results['explained']}", flush=True)
    for length in LENGTHS:
        x = torch.randn(TOKENS // length, length, WIDTH, device="cuda")
        print(f"length {length}", flush=True)
        variants: Variants = {"mamba": partial(_step, mamba, x, "kernel"), "attention": partial(_step, attention, x)}
        results[str(length)] = timed(variants, rounds=rounds, ahead=4 * AHEAD)
        if length in TORCH_LENGTHS:
            results[str(length)] |= timed({"mamba, torch form": partial(_step, mamba, x, "chunked")}, rounds=2)
    faster = [n for n in LENGTHS if results[str(n)]["mamba"]["ms"] < results[str(n)]["attention"]["ms"]]
    results["mamba is faster at lengths"] = faster
    print(f"  mamba is faster at lengths {faster}", flush=True)
    return results


def _layer_error(mamba: nn.Module) -> float:
    """Of the kernels beside the torch form, in float32: outputs, last state and gradients."""
    x = torch.randn(3, 700, WIDTH, device="cuda")
    found = []
    for form in ("kernel", "chunked"):
        mamba.zero_grad()
        with using(form):
            outputs, state = mamba(x)
            (outputs.square().sum() + state.memory.square().sum()).backward()
        gradients = [parameter.grad for parameter in mamba.parameters() if parameter.grad is not None]
        found.append([outputs.detach(), *state, *gradients])
    worst = max(map(error, *found))
    assert worst < CLOSE, worst
    return worst


def profile() -> dict[str, float]:
    """Milliseconds of a training step by kernel, the longest first."""
    mamba, x = _mamba(), torch.randn(TOKENS // 256, 256, WIDTH, device="cuda")
    _step(mamba, x, "kernel")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        _step(mamba, x, "kernel")
        torch.cuda.synchronize()
    events = seen.key_averages()
    spent = sorted(((event.self_device_time_total / 1e3, event.key[:NAME]) for event in events), reverse=True)
    for ms, name in spent[:16]:
        print(f"  {ms:9.3f} ms  {name}", flush=True)
    return {name: ms for ms, name in spent}


def convolutions(rounds: int) -> dict[str, Any]:
    """Forward and backward in bf16, of as many tokens as above."""
    results: dict[str, Any] = {}
    channels, taps = 2 * WIDTH, 4
    own = nn.Conv1d(channels, channels, taps, groups=channels).cuda()
    library = nn.Conv1d(channels, channels, taps, groups=channels).cuda().bfloat16()
    forms = short_convolution.FORMS
    for shape in ((3, 700, channels), (TOKENS // 256, 256 + taps - 1, channels)):
        seen = torch.randn(shape, device="cuda", dtype=torch.bfloat16).requires_grad_()
        given = torch.randn(shape[0], shape[1] - taps + 1, channels, device="cuda", dtype=torch.bfloat16)

        def run(name: str, seen: Tensor = seen, given: Tensor = given) -> Tensor:
            outputs: Tensor = forms[name].run(seen, own.weight, own.bias)
            outputs.backward(given)
            return outputs.detach()

        if shape[0] == 3:
            exact = forms["reference"].run(seen.float(), own.weight, own.bias).detach()
            results["errors"] = {name: error(run(name).float(), exact) for name in ("kernel", "shifted")}
            print(f"  errors {results['errors']}", flush=True)
            assert max(results["errors"].values()) < 1e-2, "bf16 keeps 8 bits"
            continue

        def by_torch(seen: Tensor = seen, given: Tensor = given) -> None:
            library(seen.transpose(1, 2)).transpose(1, 2).backward(given)

        variants: Variants = {"kernel": partial(run, "kernel"), "shifted": partial(run, "shifted")}
        results["both"] = timed({**variants, "nn.Conv1d, bf16": by_torch}, rounds=rounds)
    return results


def _inputs(batch: int, steps: int, channels: int, size: int = 16) -> list[Tensor]:
    along, chosen = (batch, steps, channels), (batch, steps, size)
    x, delta, write, read = (torch.randn(shape, device="cuda") for shape in (along, along, chosen, chosen))
    rate = -torch.rand(channels, size, device="cuda") - 0.1
    initial, skip = torch.randn(batch, channels, size, device="cuda"), torch.randn(channels, device="cuda")
    return [x, F.softplus(delta - 3), write, read, rate, initial, skip, x.flip(1)]


def _running(form: Callable[..., Any]) -> Callable[..., tuple[Tensor, Tensor]]:
    return lambda x, delta, write, read, rate, initial, skip, gate: form(
        x, selective.Selection(delta, write, read), rate, initial, skip, gate
    )


def _planned(plan: tuple[int, ...], leaves: list[Tensor], weights: Tensor) -> tuple[Callable[[], None], ...]:
    """Forward alone and with its gradient, by the kernels in a certain layout."""

    def forward() -> None:
        with torch.no_grad():
            both(backward=False)

    def both(backward: bool = True) -> None:
        before, selective.kernel.PLAN = selective.kernel.PLAN, selective.kernel.LaunchConfig(*plan)
        try:
            outputs = _running(selective.kernel.run)(*leaves)[0]
            if backward:
                outputs.backward(weights)
        finally:
            selective.kernel.PLAN = before

    return forward, both


def selective_scans(rounds: int) -> dict[str, Any]:
    results: dict[str, Any] = {"forward": {}, "forward and backward": {}, "errors": {}}
    small, large = _inputs(2, 515, 1536), [leaf.requires_grad_() for leaf in _inputs(8, 4096, 1536)]
    exact = [part.float() for part in trained(_running(selective.chunked.reference), [leaf.double() for leaf in small])]
    weights, before = torch.randn_like(large[0]), selective.kernel.PLAN
    for plan in PLANS:
        if late():
            break
        selective.kernel.PLAN = selective.kernel.LaunchConfig(*plan)
        try:
            worst = max(map(error, trained(_running(selective.kernel.run), small), exact))
        finally:
            selective.kernel.PLAN = before
        results["errors"][str(plan)] = worst
        if not worst < CLOSE:
            print(f"  {plan}: wrong, {worst:.1e}", flush=True)
            continue
        forward, both = _planned(plan, large, weights)
        results["forward"] |= timed({f"{plan} forward": forward}, rounds=rounds)
        results["forward and backward"] |= timed({f"{plan} both": both}, rounds=rounds)
    torch_form = {"torch form, both": lambda: _running(selective.chunked.run)(*large)[0].backward(weights)}
    results["forward and backward"] |= timed(torch_form, rounds=2)
    return results


def segments(rounds: int) -> dict[str, Any]:
    """One row and few: how many programs time should be cut for."""
    results: dict[str, Any] = {}
    for shape in ((1, 16384, 2 * WIDTH), (4, 4096, 2 * WIDTH)):
        leaves = [leaf.requires_grad_() for leaf in _inputs(*shape)]
        weights = torch.randn_like(leaves[0])
        layout = tuple(selective.kernel.PLAN)[:3]
        for programs in PROGRAMS:
            forward, both = _planned((*layout, programs), leaves, weights)
            title = f"{shape}, {programs} programs"
            results |= timed({f"{title}, forward": forward, f"{title}, both": both}, rounds=rounds)
            if late():
                return results
    return results
