"""Training step of a two-layer LSTM language model on one CPU thread: elman against a plain torch loop.

The plain loop: nn.LSTM, logits of all positions, F.cross_entropy, Adam. A timing covers the step with the optimizer.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.reporting import show
from elman.batches import Batch
from elman.bench.harness import compare, interleaved
from elman.models import LanguageModel, StackConfig
from elman.recurrence import using
from elman.training import TrainingConfig, World
from elman.training.update import Updater

WORDS, ROWS, TIME = 10_000, 32, 64


class Usual(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        x, state = self.lstm(self.embedding(tokens), state)
        return self.head(x), state


def usual(width: int, batch: Batch) -> Callable[[], None]:
    torch.manual_seed(0)
    model = Usual(width)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    held: list[Any] = [None]

    def step() -> None:
        optimizer.zero_grad()
        logits, state = model(batch.inputs, held[0])
        F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        held[0] = tuple(part.detach() for part in state)

    return step


def ours(width: int, batch: Batch, form: str) -> Callable[[], None]:
    torch.manual_seed(0)
    config = StackConfig.make({"pattern": ["lstm"], "num_layers": 2, "hidden_size": width, "tied_embeddings": False})
    model = LanguageModel(config, WORDS)
    update = Updater(model, TrainingConfig.make({"optimizer": "adam"}), torch.device("cpu"), World())

    def step() -> None:
        with using(form):
            update(batch, 1e-3)

    return step


def measure(rounds: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokens = torch.randint(WORDS, (ROWS, TIME + 1))
    batch = Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), None, fresh=False)
    results = {}
    for width in (256, 512):
        variants = {"usual torch loop": usual(width, batch)}
        variants |= {
            f"elman, {form} recurrence": ours(width, batch, form) for form in ("compiled", "vendor", "reference")
        }
        seconds = interleaved(variants, rounds)
        table = compare(seconds, "usual torch loop")
        show(f"LSTM language model, width {width}, {WORDS:,} words, {ROWS} x {TIME}", table, "usual torch loop")
        loop = compare(seconds, "elman, vendor recurrence")["elman, reference recurrence"]["faster"]
        print(f"  the reference loop takes {1 / loop:.2f} x the vendor path's time")
        results[f"width {width}"] = {**table, "reference over vendor": 1 / loop}
    return results
