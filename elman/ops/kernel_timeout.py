"""Kernels whose thread blocks poll for each other's results: the sentinel of memory not yet written, and a timeout.

The timeout is a flag in device memory, which raises at the next call: a kernel gets `of(device)[0]` and sets it after
polling `PATIENCE` times in vain. `send` follows a launch and `check` precedes the next one; neither synchronises with
the device.
"""

import torch
from torch import Tensor

from elman.errors import TrainingError

ABSENT = -1  # the sentinel, all bits set: a NaN that arithmetic does not produce, whose NaNs have no sign bit
PATIENCE = 2**22  # polls before a block gives up: some seconds, while a synchronisation takes a microsecond
ALARMS: dict[torch.device, tuple[Tensor, Tensor]] = {}  # the flag on the device, and a copy in pinned host memory


def of(device: torch.device) -> tuple[Tensor, Tensor]:
    if device not in ALARMS:
        with torch.inference_mode(False):  # the first call may come from evaluation, a later one from training
            alarm = torch.zeros(1, dtype=torch.int32, device=device)
            copy = torch.zeros(1, dtype=torch.int32, device="cpu", pin_memory=device.type == "cuda")
        ALARMS[device] = alarm, copy
    return ALARMS[device]


def send(device: torch.device) -> None:
    alarm, copy = of(device)
    copy.copy_(alarm, non_blocking=True)


def check(device: torch.device, wait: bool = False) -> None:
    """Raises if an earlier kernel timed out; `wait` synchronises with the device, else only reads the last copy."""
    if device not in ALARMS:
        return
    alarm, copy = ALARMS[device]
    if not int(alarm if wait else copy):
        return
    del ALARMS[device]
    raise TrainingError(
        "a kernel timed out waiting for its other thread blocks, so its results are invalid: another process uses part "
        "of the GPU. Give the GPU to this process alone, or run under elman.recurrence.using('reference')"
    )
