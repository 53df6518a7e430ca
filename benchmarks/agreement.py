"""Correctness checks that run before any timing: every fast implementation against its reference, on this machine."""

from collections.abc import Iterable

import torch
from torch import Tensor

from elman.cells import CELLS
from elman.compiler.cpu.step import RowRunner, Runner, compile_step
from elman.compiler.errors import CannotCompile
from elman.generation.sampling import GenerationConfig
from elman.generation.stream import generate_tokens
from elman.layers import LAYERS
from elman.models import LanguageModel, StackConfig
from elman.ops.state import tensors
from elman.recurrence import forms_that_can_run, using

TOLERANCE = 1e-3  # relative to the largest element: float32, with matmuls in TF32 where the device has it


def recurrence() -> list[str]:
    """Outputs, final state and gradients of every cell, in every implementation that runs here."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    errors = []
    for name in CELLS:
        torch.manual_seed(0)
        layer = LAYERS[name](LAYERS[name].Config(), 32).to(device)
        x = torch.randn(4, 8, 32, device=device)
        expected = _forward_backward(layer, x, "reference")
        for form in forms_that_can_run(layer.cell, x):
            if form != "reference" and not _close(_forward_backward(layer, x, form), expected):
                errors.append(f"{name}: the {form} implementation of the recurrence differs from the reference")
    return errors


def scans() -> list[str]:
    """Layers with a linear recurrence: the parallel scan against stepping."""
    errors = []
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
        if not _close([whole], [torch.stack(steps, 1)]):
            errors.append(f"{name}: the parallel scan differs from stepping")
    return errors


def stepping() -> list[str]:
    """The compiled step of a model (C++) against its step in torch."""
    errors = []
    for name in ("lstm", "gru", "attention", "mamba"):
        torch.manual_seed(0)
        config = StackConfig.make({"hidden_size": 32, "pattern": [name]})
        model = LanguageModel(config, 50).eval()
        state = model.initial_state(1)
        try:
            runner = Runner(compile_step(model), [part for _, part in tensors(state)])
        except CannotCompile as problem:
            errors.append(f"{name}: cannot be compiled: {problem}")
            continue
        with torch.inference_mode():
            for word in (3, 1, 4, 1, 5):
                expected, state = model.step(torch.tensor([word]), state)
                if not _close([runner.step(torch.tensor([word]))], [expected]):
                    errors.append(f"{name}: the compiled step differs from torch")
                    break
    return errors


def rows() -> list[str]:
    """Rows of a compiled step in company against the same rows alone: the same bits."""
    errors = []
    for weights in ("fp32", "int8"):
        torch.manual_seed(0)
        model = LanguageModel(StackConfig.make({"hidden_size": 200, "pattern": ["lstm"]}), 300).eval()
        program, state = compile_step(model, weights), model.initial_state(1)
        runner = RowRunner(program, threads=2)
        numbers = [runner.add(state) for _ in range(9)]
        for _ in range(2):
            runner.step(numbers, numbers)
        for row in numbers:
            alone = Runner(program, [part for _, part in tensors(state)])
            if not torch.equal([alone.step(torch.tensor([row])).clone() for _ in range(2)][1], runner.logits(row)):
                errors.append(f"{weights}: row {row} of nine differs from the same row alone")
    return [*stepping(), *errors]


def generation() -> list[str]:
    """Texts generated with a CUDA graph against torch, with top-k, top-p and repetition penalty."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    errors = []
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
            errors.append(f"{name}: generation with a CUDA graph gives another text than torch")
    return errors


def _forward_backward(layer: torch.nn.Module, x: Tensor, form: str) -> list[Tensor]:
    layer.zero_grad()
    with using(form):
        outputs, state = layer(x)
        (outputs.square().sum() + sum(part.sum() for _, part in tensors(state))).backward()
    return [outputs, *(part for _, part in tensors(state)), *(p.grad for p in layer.parameters() if p.grad is not None)]


def _close(found: Iterable[Tensor], expected: Iterable[Tensor]) -> bool:
    pairs = list(zip(found, expected, strict=True))
    return all((a - b).abs().max() <= TOLERANCE * (1 + b.abs().max()) for a, b in pairs)
