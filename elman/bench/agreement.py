"""Before anything is timed: does each fast form give what the slow one gives, on this machine?"""

from collections.abc import Iterable

import torch
from torch import Tensor

from elman.cells import CELLS
from elman.compiler.cpu.step import Runner, compile_step
from elman.compiler.errors import CannotCompile
from elman.generation.sampling import GenerationConfig
from elman.generation.stream import generate_tokens
from elman.layers import LAYERS
from elman.models import LanguageModel, StackConfig
from elman.ops.state import tensors
from elman.recurrence import forms_that_can_run, using

CLOSE = 1e-3  # of the largest number: float32, and products in tf32 where the device has them


def recurrence() -> list[str]:
    """Every cell in every form that runs here: outputs, last state and gradients."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    broken = []
    for name in CELLS:
        torch.manual_seed(0)
        layer = LAYERS[name](LAYERS[name].Config(), 32).to(device)
        x = torch.randn(4, 8, 32, device=device)
        slow = _trained(layer, x, "reference")
        for form in forms_that_can_run(layer.cell, x):
            if form != "reference" and not _same(_trained(layer, x, form), slow):
                broken.append(f"{name}: the {form} form of the recurrence differs from the reference")
    return broken


def scans() -> list[str]:
    """Layers that are linear in their state: all positions at once beside step after step."""
    broken = []
    for name in ("mingru", "minlstm", "s4d", "s4", "mamba", "linear-attention"):
        torch.manual_seed(0)
        layer = LAYERS[name](LAYERS[name].Config(), 32).eval()
        x, state = torch.randn(2, 20, 32), layer.initial_state(2)
        with torch.no_grad():
            whole, _ = layer(x)
            steps = []
            for part in x.unbind(1):
                output, state = layer.step(part, state)
                steps.append(output)
        if not _same([whole], [torch.stack(steps, 1)]):
            broken.append(f"{name}: a sequence at once differs from its steps")
    return broken


def stepping() -> list[str]:
    """Machine code for the step of a model beside torch."""
    broken = []
    for name in ("lstm", "gru", "attention", "mamba"):
        torch.manual_seed(0)
        config = StackConfig.make({"hidden_size": 32, "pattern": [name]})
        model = LanguageModel(config, 50).eval()
        state = model.initial_state(1)
        try:
            runner = Runner(compile_step(model), [part for _, part in tensors(state)])
        except CannotCompile as problem:
            broken.append(f"{name}: no machine code: {problem}")
            continue
        with torch.inference_mode():
            for word in (3, 1, 4, 1, 5):
                expected, state = model.step(torch.tensor([word]), state)
                if not _same([runner.step(torch.tensor([word]))], [expected]):
                    broken.append(f"{name}: machine code differs from torch")
                    break
    return broken


def generation() -> list[str]:
    """Texts by captured steps beside those of torch's own, the settings of choice in use."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    broken = []
    for name in ("lstm", "attention", "mamba", "experts"):
        torch.manual_seed(0)
        config = StackConfig.make({"hidden_size": 32, "pattern": [name]})
        model = LanguageModel(config, 50).to(device).eval()
        texts = []
        for engine in ("torch", "captured"):
            rules = GenerationConfig(max_tokens=40, seed=1, top_k=20, top_p=0.9, repetition_penalty=1.2, engine=engine)
            steps = generate_tokens(model, [[1, 2, 3], [], [4]], rules, 0)
            texts.append([[choice and choice.token for choice in step] for step in steps])
        if texts[0] != texts[1]:
            broken.append(f"{name}: captured steps write another text than torch")
    return broken


def _trained(layer: torch.nn.Module, x: Tensor, form: str) -> list[Tensor]:
    layer.zero_grad()
    with using(form):
        outputs, state = layer(x)
        (outputs.square().sum() + sum(part.sum() for _, part in tensors(state))).backward()
    return [outputs, *(part for _, part in tensors(state)), *(p.grad for p in layer.parameters() if p.grad is not None)]


def _same(found: Iterable[Tensor], expected: Iterable[Tensor]) -> bool:
    pairs = list(zip(found, expected, strict=True))
    return all((a - b).abs().max() <= CLOSE * (1 + b.abs().max()) for a, b in pairs)
