"""One update of the WikiText-2 LSTM recipe: elman's training loop against the same model in plain torch.

The plain model is nn.LSTM per layer with weight dropout as a parametrization, all logits at once, F.cross_entropy and
SGD. Tokens are random, since speed does not depend on them. Before timing, both are trained for a few updates from the
same weights without dropout, and their losses must be equal.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from benchmarks.reporting import show
from elman.batches import Batch
from elman.bench.harness import compare, interleaved
from elman.models import LanguageModel, StackConfig
from elman.ops.dropout import locked_dropout
from elman.recurrence import using
from elman.training import TrainingConfig, World
from elman.training.cuda_graph import WARMUP_UPDATES
from elman.training.update import Updater

RATE, CLIP, TOKENS = 1.0, 0.25, 2_088_628  # tokens of WikiText-2's training text
CLOSE = 5e-3  # nats of a token, after some updates in half precision


class Shape(NamedTuple):
    """Sizes of recipes/wikitext2-lstm.yaml."""

    widths: tuple[int, ...] = (1024, 640)
    embedding: int = 640
    words: int = 33_278
    rows: int = 64
    time: int = 70
    updates: int = 10  # in one timing

    def settings(self, dropping: bool) -> dict[str, Any]:
        shares = {"dropout": 0.25, "input_dropout": 0.6, "output_dropout": 0.4, "embedding_dropout": 0.1}
        shares |= {"weight_dropout": 0.5}
        pattern = [{"lstm": {"hidden_size": width}} for width in self.widths]
        return {"pattern": pattern, "embedding_size": self.embedding, **(shares if dropping else {})}


class Dropped(nn.Module):
    def __init__(self, share: float):
        super().__init__()
        self.share = share

    def forward(self, weight: Tensor) -> Tensor:
        return F.dropout(weight, self.share, self.training)


class Plain(nn.Module):
    """The same model from torch modules, with the weights of `twin`."""

    def __init__(self, twin: LanguageModel):
        super().__init__()
        self.config = twin.config
        self.embedding = nn.Embedding(twin.vocab_size, twin.embedding.embedding_dim)
        self.output = nn.Linear(twin.embedding.embedding_dim, twin.vocab_size)
        self.output.weight = self.embedding.weight
        cells: list[Any] = [block.layer.cell for block in twin.stack.blocks()]
        self.layers = nn.ModuleList(nn.LSTM(cell.input_size, cell.hidden_size, batch_first=True) for cell in cells)
        with torch.no_grad():
            self.embedding.weight.copy_(twin.embedding.weight)
            self.output.bias.zero_()
            for layer, cell in zip(self.layers, cells, strict=True):
                own = (cell.from_input.weight, cell.from_past.weight, cell.from_input.bias, torch.zeros_like)
                for parameter, value in zip(layer.parameters(), own, strict=True):
                    parameter.copy_(value(parameter) if callable(value) else value)
                layer.bias_hh_l0.requires_grad_(False)  # one bias is enough
        for layer in self.layers if twin.config.weight_dropout else []:
            parametrize.register_parametrization(layer, "weight_hh_l0", Dropped(twin.config.weight_dropout))

    def forward(self, tokens: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        config, after = self.config, []
        weight = self.embedding.weight
        weight = weight * F.dropout(weight.new_ones(len(weight), 1), config.embedding_dropout, self.training)
        x = locked_dropout(F.embedding(tokens, weight), config.input_dropout or 0.0, self.training)
        for number, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            x = x if number == 0 else locked_dropout(x, config.dropout, self.training)
            x, state = layer(x, state)  # noqa: PLW2901
            after.append(tuple(part.detach() for part in state))
        return self.output(locked_dropout(x, config.output_dropout or 0.0, self.training)), after


def plain(twin: LanguageModel, batch: Batch, precision: str) -> Callable[[], Tensor]:
    """An update in plain torch, in fp32 (TF32 where the device has it), fp16 or bf16."""
    device = batch.inputs.device
    model = Plain(twin).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision)
    states: list[list[Any]] = [[None] * len(model.layers)]

    def update() -> Tensor:
        optimizer.zero_grad()
        with torch.autocast(device.type, half) if half else nullcontext():
            logits, states[0] = model(batch.inputs, states[0])
            loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return update


def ours(
    model: LanguageModel, batch: Batch, precision: str, form: str = "auto", captured: bool = False
) -> Callable[[], Tensor]:
    device = batch.inputs.device
    settings = {"optimizer": "sgd", "learning_rate": RATE, "clip_grad_norm": CLIP, "precision": precision}
    updater = Updater(model.to(device), TrainingConfig.make({**settings, "captured": captured}), device, World())

    def update() -> Tensor:
        before = updater.sums[0].clone()
        with using(form):
            updater(batch, RATE)
        if captured and (updater.captured is None or updater.captured.failed):
            raise RuntimeError("the update could not be captured")
        return (updater.sums[0] - before) / batch.real

    return update


def make(shape: Shape, dropping: bool) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(StackConfig.make(shape.settings(dropping)), shape.words)


def draw(shape: Shape, device: torch.device) -> Batch:
    tokens = torch.randint(shape.words, (shape.rows, shape.time + 1), generator=torch.Generator().manual_seed(1))
    return Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), None, fresh=False).to(device)


def learning(update: Callable[[], Tensor], count: int) -> list[float]:
    """Losses of some updates."""
    return [float(update()) for _ in range(count)]


def measure(rounds: int, shape: Shape = Shape()) -> dict[str, Any]:  # noqa: B008  (a tuple)
    """Time per update and per epoch, and speed-up over the fastest plain torch variant."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    precisions, count = ["fp16", "bf16"], WARMUP_UPDATES + 5  # so that some of these updates are replayed
    forms = [("generated", False), ("vendor", False), ("generated", True), ("vendor", True)]
    if device.type == "cpu":
        precisions, count, forms = ["fp32"], 5, [("compiled", False), ("vendor", False)]
    results: dict[str, Any] = {"losses": {}}
    variants: dict[str, Callable[[], Tensor]] = {}
    batch = draw(shape, device)
    for precision in precisions:
        expected = learning(
            plain(make(shape, False), batch, precision), count
        )  # from the same weights, without dropout
        losses = results["losses"][precision] = {"plain": expected}
        for form, captured in forms:
            name = f"elman {precision}, {form}{', captured' if captured else ''}"
            try:
                losses[name] = learning(ours(make(shape, False), batch, precision, form, captured), count)
            except Exception as problem:  # recorded, so that the other variants are still measured
                results[name] = {"error": str(problem)[:500]}
                continue
            gap = max(abs(a - b) for a, b in zip(losses[name], expected, strict=True))
            if gap <= CLOSE:
                variants[name] = ours(make(shape, True), batch, precision, form, captured)
            else:
                results[name] = {"error": f"losses differ from plain torch by {gap:.4f}"}
        variants[f"plain torch {precision}"] = plain(make(shape, True), batch, precision)

    def several(update: Callable[[], Tensor]) -> Callable[[], float]:
        return lambda: float([update() for _ in range(shape.updates)][-1])  # one synchronization at the end

    seconds = interleaved({name: several(update) for name, update in variants.items()}, rounds)
    against = min((name for name in seconds if name.startswith("plain")), key=lambda name: min(seconds[name]))
    table = compare(seconds, against)
    show(f"{shape.updates} updates of the WikiText-2 LSTM recipe", table, against)
    for row in table.values():
        row["epoch seconds"] = row["ms"] / 1e3 / shape.updates * TOKENS / (shape.rows * shape.time)
    return results | {f"against {against}": table}
