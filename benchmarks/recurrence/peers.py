"""What runs side by side in a case: ours, torch's in every dtype, and our own loop under CUDA graphs."""

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.recurrence.cases import KINDS, Case, build
from elman.compiler.triton.partition import Partition
from elman.layers.bidirectional import Bidirectional
from elman.recurrence import compiled_triton, using
from elman.recurrence.compiled_triton import use_partitions

LOOP = 64  # steps of our own loop, which is the same at each


class Variant:
    """Something that can be run for its outputs alone, or with a backward pass after it; `divided` as is said."""

    def __init__(
        self,
        forward: Callable[[], Tensor],
        leaves: list[Tensor],
        steps: int,
        divided: dict[str, Partition] | None = None,
    ):
        self.outputs, self.leaves, self.steps, self.divided = forward, leaves, steps, divided or {}
        self.passes: dict[str, Callable[[], Any]] = {"forward": self.forward, "training": self.training}

    def forward(self) -> None:
        with torch.no_grad(), use_partitions(**self.divided):
            self.outputs()

    def training(self) -> None:
        for leaf in self.leaves:
            leaf.grad = None
        with use_partitions(**self.divided):  # backward asks for its own when it runs
            outputs = self.outputs()
            outputs.backward(torch.ones_like(outputs))


def variants(case: Case, kinds: list[str], partitions: list[dict[str, Any]], device: str, form: str) -> dict[str, Any]:
    """What was found right of ours, and all peers. What cannot be made says why."""
    torch.manual_seed(1)
    x = torch.randn(case.shape, device=device)
    lengths = _lengths(case)
    if case.form == "sweep":
        return {json.dumps(one): _ours(case, "bf16", x, form, partition=one) for one in partitions}
    found: dict[str, Any] = {f"ours {kind}": _ours(case, kind, x, form, lengths) for kind in kinds}
    if case.form == "both ways" and form == "generated":
        found |= {f"ours {kind}, two launches": _in_turn(case, kind, x) for kind in kinds}
    if case.cell == "lstm":
        options = {"num_layers": 2 if case.form == "two layers" else 1, "bidirectional": case.form == "both ways"}
        return found | {f"torch {kind}": _torchs("LSTM", kind, x, lengths, **options) for kind in KINDS}
    found["torch GRU bf16"] = _torchs("GRU", "bf16", x)
    if device == "cuda":
        short = x[:, :LOOP].contiguous()
        try:
            found[f"our loop, captured ({LOOP} steps)"] = captured(_ours(case, kinds[0], short, "reference"))
        except Exception as problem:
            found[f"our loop, captured ({LOOP} steps)"] = f"{type(problem).__name__}: {str(problem)[:300]}"
    return found


def _lengths(case: Case) -> Tensor | None:
    batch, time, _ = case.shape
    generator = torch.Generator().manual_seed(0)
    return torch.randint(max(1, time // 4), time + 1, (batch,), generator=generator) if case.form == "ragged" else None


def _ours(case: Case, kind: str, x: Tensor, form: str, lengths: Tensor | None = None, partition: Any = None) -> Variant:
    layer = build(case, KINDS[kind], x.device.type)
    x = x.to(KINDS[kind]).requires_grad_()
    there = None if lengths is None else lengths.to(x.device)
    given = {way: Partition(**own) for way, own in (partition or {}).items()}

    def forward() -> Tensor:
        with using(form):
            return layer(x, None, there)[0]

    return Variant(forward, [x, *layer.parameters()], x.shape[1], given)


def _in_turn(case: Case, kind: str, x: Tensor) -> Variant:
    """Both ways as two launches, one after the other."""
    layer: Any = build(case, KINDS[kind], x.device.type)
    assert isinstance(layer, Bidirectional)
    x = x.to(KINDS[kind]).requires_grad_()
    cells: list[Any] = [layer.ahead.cell, layer.back.cell]
    states = [cell.initial_state(len(x)) for cell in cells]

    def forward() -> Tensor:
        ahead, _ = compiled_triton.run(cells[0], x, states[0], None)
        back, _ = compiled_triton.run(cells[1], x, states[1], None, reverse=True)
        return torch.cat([ahead, back], -1)

    return Variant(forward, [x, *layer.parameters()], x.shape[1])


def _torchs(name: str, kind: str, x: Tensor, lengths: Tensor | None = None, **options: Any) -> Variant:
    size = x.shape[2]
    module = getattr(nn, name)(size, size, batch_first=True, device=x.device, dtype=KINDS[kind], **options)
    x = x.to(KINDS[kind]).requires_grad_()

    def forward() -> Tensor:
        if lengths is None:
            return module(x)[0]
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return module(packed)[0].data

    return Variant(forward, [x, *module.parameters()], x.shape[1])


def captured(variant: Variant) -> Variant:
    """The same under CUDA graphs, which spare the host's work."""
    for name, run in variant.passes.items():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        variant.passes[name] = graph.replay
    return variant
