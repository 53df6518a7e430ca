"""Feed changed inputs to everything that reads files: it reads them, or says in one sentence why not.

    python -m benchmarks.attack.fuzz --count 250000

A violation is an exception that is not one of elman's own, an assertion of the reader, more than ten seconds of
processor time or a minute in all, more than a gigabyte of memory, or a crash. It is written to fuzz-inputs/ beside the
record. Input N of a kind is always the same; a later call goes on where the last one stopped.
"""

import faulthandler
import json
import mmap
import os
import random
import resource
import signal
import struct
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.attack.campaign import Campaign, parser
from benchmarks.attack.folders import folder_kinds
from benchmarks.attack.inputs import Kind, data_kinds
from elman.errors import ElmanError

SECONDS, WALL = 10.0, 60.0  # of processor time and in all, for one input
MEMORY = 2**30  # bytes above those of the process at its start
BATCH = 1000  # inputs of one child
MEMORY_DISK = Path("/dev/shm")
SHOWN = 2  # violations of one exception at one line that are recorded
PAGE = resource.getpagesize()


class Progress:
    """What a child tells its parent, even if it dies: the number of its input, and how many were read and refused."""

    form = struct.Struct("qqq")

    def __init__(self) -> None:
        self.shared = mmap.mmap(-1, self.form.size)

    def __call__(self, number: int, read: int, refused: int) -> None:
        self.form.pack_into(self.shared, 0, number, read, refused)

    def get(self) -> tuple[int, int, int]:
        return self.form.unpack_from(self.shared)


def take(kind: Kind, name: str, number: int, folder: Path) -> bool:
    """Whether input N of a kind is read (true) or refused by one of elman's errors."""
    dice = random.Random(f"{name} {number}")
    file, data = kind.input(dice)
    path = folder / file
    path.write_bytes(data)
    try:
        kind.read(path, dice)
    except ElmanError as error:
        if not str(error).strip():
            raise ValueError("an error without a message") from error
        return False
    return True


def warm_up(kind: Kind, example: str, folder: Path) -> None:
    """Reads an example as it is, so that no child has to import what reads it."""
    path = folder / example
    path.write_bytes(kind.examples[example])
    with suppress(ElmanError):  # of settings that do not fit it
        kind.read(path, random.Random(example))


def child(kind: Kind, name: str, first: int, most: int, folder: Path, progress: Progress, tell: int) -> None:
    """Reads inputs, and tells violations as lines of JSON."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.chdir(folder)
    faulthandler.disable()
    warnings.simplefilter("ignore")
    size = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    read = refused = 0
    for number in range(first, first + most):
        progress(number, read, refused)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # its signal ends the process, wherever it is
        signal.setitimer(signal.ITIMER_REAL, WALL)
        try:
            good = take(kind, name, number, folder)
            read, refused = read + good, refused + (not good)
        except BaseException as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            own = [one for one in traceback.extract_tb(error.__traceback__) if "/elman/" in one.filename] or [frame]
            line = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
            text = f"{type(error).__name__} at {line}: {' '.join(str(error).split())[:200]}"
            os.write(tell, (json.dumps([number, f"{type(error).__name__} {line}", text]) + "\n").encode())
    progress(first + most, read, refused)


def batch(
    kind: Kind, name: str, first: int, most: int, folder: Path
) -> tuple[int, int, int, list[tuple[int, str, str]]]:
    """The number after the last input, how many were read and refused, and violations."""
    progress, (hear, tell) = Progress(), os.pipe()
    process = os.fork()
    if process == 0:
        code = 1
        try:
            child(kind, name, first, most, folder, progress, tell)
            code = 0
        finally:
            os._exit(code)
    os.close(tell)
    with os.fdopen(hear) as lines:
        found = [tuple(json.loads(line)) for line in lines if line.endswith("\n")]
    _, status = os.waitpid(process, 0)
    number, read, refused = progress.get()
    code = os.waitstatus_to_exitcode(status)
    if code:
        hung = code in (-signal.SIGPROF, -signal.SIGALRM)
        text = "hang" if hung else f"crash with {signal.Signals(-code).name if code < 0 else code}"
        found.append((number, text, text))
        number += 1
    return number, read, refused, found


def main() -> None:
    sys.setrecursionlimit(1000)
    builders: dict[str, Callable[[Path], Kind]] = {
        name: partial(_ignoring, make) for name, make in data_kinds().items()
    }
    builders |= folder_kinds()
    campaign = Campaign(parser("fuzz", __doc__, 250_000, [*builders]).parse_args())
    seen: Counter[tuple[str, str]] = Counter()
    with TemporaryDirectory(dir=MEMORY_DISK if MEMORY_DISK.is_dir() else None) as place:
        home = Path(place)
        kinds = {}
        for name in campaign.kinds:
            (home / name).mkdir()
            kinds[name] = builders[name](home / name)
            (home / f"{name} inputs").mkdir()
            for example in kinds[name].examples:
                warm_up(kinds[name], example, home / f"{name} inputs")
        done: Counter[str] = Counter()
        while campaign.more():
            name = min(kinds, key=lambda one: done[one] / kinds[one].share)
            first = campaign.next.get(name, 0)
            part = int(campaign.count * kinds[name].share / sum(kind.share for kind in kinds.values())) + 1
            most = min(part, BATCH, campaign.count - campaign.cases)
            after, read, refused, violations = batch(kinds[name], name, first, most, home / f"{name} inputs")
            done[name] += after - first
            campaign.next[name] = after
            for outcome, count in (("read", read), ("refused", refused)):
                for _ in range(count):
                    campaign.tally(f"{name}: {outcome}")
            for number, key, text in violations:
                seen[name, key] += 1
                shown = seen[name, key] <= SHOWN
                campaign.tally(f"{name}: violation")
                if shown:
                    campaign.report(name, f"input {number}: {text}")
                    _keep(kinds[name], name, number, campaign.path.parent / "fuzz-inputs")
    campaign.end()


def _ignoring(make: Callable[[], Kind], folder: Path) -> Kind:
    return make()


def _keep(kind: Kind, name: str, number: int, folder: Path) -> None:
    """Writes out the input of a violation."""
    folder.mkdir(exist_ok=True)
    file, data = kind.input(random.Random(f"{name} {number}"))
    (folder / f"{name}-{number}-{file}").write_bytes(data)


if __name__ == "__main__":
    main()
