"""How programs of a kernel that wait for each other end if one never comes: by an alarm, at which the next call raises.

A kernel is given `of(device)[0]`, and looks at most `PATIENCE` times; after the launch comes `send`, before the next
one `check`, neither of which waits for the device.
"""

import torch
from torch import Tensor

from elman.errors import TrainingError

PATIENCE = 2**22  # looks before a program gives up: some seconds, where a meeting takes a microsecond
ALARMS: dict[torch.device, tuple[Tensor, Tensor]] = {}  # on the device, and a copy that can be read without waiting


def of(device: torch.device) -> tuple[Tensor, Tensor]:
    if device not in ALARMS:
        alarm = torch.zeros(1, dtype=torch.int32, device=device)
        ALARMS[device] = alarm, torch.zeros(1, dtype=torch.int32, device="cpu", pin_memory=device.type == "cuda")
    return ALARMS[device]


def send(device: torch.device) -> None:
    alarm, copy = of(device)
    copy.copy_(alarm, non_blocking=True)


def check(device: torch.device, wait: bool = False) -> None:
    """Raises if an earlier kernel gave up. Without `wait`, only if that is already known here."""
    if device not in ALARMS:
        return
    alarm, copy = ALARMS[device]
    if not int(alarm if wait else copy):
        return
    del ALARMS[device]
    raise TrainingError(
        "a kernel waited in vain for its other programs, so its results are not valid: something else holds part of "
        "the GPU. Give the GPU to this process alone, or run under elman.recurrence.using('reference')"
    )
