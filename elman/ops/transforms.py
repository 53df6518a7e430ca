"""Transformations of torch that need plain operations: torch.compile, torch.export and torch.func.

What reads values, calls C++ of its own or has one hand-written derivative cannot be exported, batched or differentiated
again. Forms (`ops/forms.py`) and shortcuts (`ops/host_sync.py`) ask here, and give way to the reference with the
reason. torch.compile runs what it cannot trace as it is, so it needs this only where that fails.
"""

import torch
from torch.autograd import forward_ad


def compiling() -> bool:
    """Whether torch.compile or torch.export traces."""
    return torch.compiler.is_compiling()


def transformation() -> str | None:
    """The reason why only plain operations can run now; None where anything can."""
    if torch.compiler.is_dynamo_compiling():
        return None
    if torch.compiler.is_exporting():
        return "torch.export traces plain operations only"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "torch.func transforms plain operations only"
    if forward_ad._current_level >= 0:
        return "forward-mode derivatives need plain operations"
    return None
