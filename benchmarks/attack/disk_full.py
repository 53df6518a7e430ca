"""Fill the disk under work, take files away or disturb it otherwise: one sentence, nothing lost, no other result.

    python -m benchmarks.attack.disk_full

full       every file operation fails from the n-th on: no space, no quota, an input or output error, a read-only disk
tmpfs      a disk of n times 64 KiB, which grows when work has ended; where none can be mounted, files may not be longer
read-only  a disk that becomes read-only between two attempts
deleted    a file of a run vanishes before an operation: it ends the same, or with a sentence that names what is missing
together   two processes at the same work
clock      the clock is set back, and all files are from the future
cache      a compiled library is damaged, cut, empty or replaced by a folder: it is built again

In each case work that failed says so in one sentence, and the same command, once it can, leaves the same files.
"""

import errno
import os
import random
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.attack.attempts import Attempt, Ended, Operations, fail, warm_up
from benchmarks.attack.campaign import Campaign, parser
from benchmarks.attack.kills import Attacked
from benchmarks.attack.kinds import BRIEF

STEP = 64 * 2**10  # bytes
ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
WORK = [*BRIEF, "predict"]
Case = Callable[[int, random.Random], list[str] | None]  # what went wrong in case n; None: there is none


def unclear(ended: Ended) -> list[str]:
    """What is wrong with the end of work that failed: it is told in one sentence of elman, the last that is said."""
    last = (ended.said.strip().splitlines() or [""])[-1]
    fine = ended.code in (1, 2) and "Traceback" not in ended.said and "please report" not in ended.said
    if fine and ended.said.count("\nelman: ") + ended.said.startswith("elman: ") >= 1:
        return []
    return [f"ends with code {ended.code}: {last or ended.said[-500:]}"]


def finished(work: Attacked, where: str) -> list[str]:
    """The same command, undisturbed, leaves the same files."""
    again = work.attempt(where)
    return [f"going on: code {again.code}: {again.said[-500:]}"] if again.code else work.differences(where)


class Disturbances:
    """The cases of each kind, on work in a folder of its own."""

    def __init__(self, place: Path):
        self.place, self.works = place, dict[str, Attacked]()

    def work(self, name: str) -> Attacked:
        if name not in self.works:
            self.works[name] = Attacked(name, self.place / name / "work")
        self.works[name].enter()
        return self.works[name]

    def full(self, number: int, dice: random.Random) -> list[str] | None:
        """From any operation on; every kind of work in turn."""
        work, code = self.work(WORK[number % len(WORK)]), ERRORS[number // len(WORK) % len(ERRORS)]
        first = dice.randint(1, work.operations)
        ended = work.attempt("try-full", Operations(first, fail(code), lasting=True))
        wrong = [] if ended.code == 0 else unclear(ended)
        about = f"{work.name}, {errno.errorcode[code]} from operation {first} on: "
        return [about + text for text in wrong + finished(work, "try-full")]

    def tmpfs(self, number: int, dice: random.Random) -> list[str] | None:
        work, where = self.work("large"), "try-tmpfs"
        Path(where).mkdir(exist_ok=True)
        size = (number + 1) * STEP
        mounted = mount(where, size)

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        ended = work.begin(where, None, (lambda: None) if mounted else limit).end()
        if mounted:
            mount(where, size=2**30, again=True)
        wrong = ([] if ended.code == 0 else unclear(ended)) + finished(work, where)
        unmount(where)
        if ended.code == 0 and not wrong:
            return None
        return [f"{size} bytes: {text}" for text in wrong]

    def read_only(self, number: int, dice: random.Random) -> list[str] | None:
        work, where = self.work(WORK[number % len(WORK)]), "try-ro"
        Path(where).mkdir(exist_ok=True)
        if not mount(where, 2**30):
            return None
        work.attempt(where, Operations(dice.randint(1, work.operations)))
        mount(where, 2**30, again=True, options="ro")
        ended = work.attempt(where)
        mount(where, 2**30, again=True, options="rw")
        wrong = unclear(ended) + finished(work, where)
        unmount(where)
        return [f"{work.name}: {text}" for text in wrong]

    def deleted(self, number: int, dice: random.Random) -> list[str] | None:
        work, where = self.work(WORK[number % len(WORK)]), "try-deleted"
        gone: list[str] = []
        operation = dice.randint(2, work.operations)

        def delete() -> None:
            present = sorted(path for path in Path(where).rglob("*") if path.name != "lock")
            if present:
                chosen = dice.choice(present)
                os.write(2, f"deleted {chosen}\n".encode())
                shutil.rmtree(chosen) if chosen.is_dir() else chosen.unlink()

        ended = work.attempt(where, Operations(operation, delete))
        gone = [line for line in ended.said.splitlines() if line.startswith("deleted ")]
        wrong = [] if ended.code == 0 else unclear(ended)
        again = work.attempt(where)
        if again.code:
            wrong += unclear(again)  # what is lost is said, and nothing else is made of the rest
        elif Path(where, work.kind.out).exists():
            wrong += work.differences(where, complete=False)
        shutil.rmtree(where, ignore_errors=True)
        return [f"{work.name}, {' '.join(gone)} before operation {operation}: {text}" for text in wrong]

    def together(self, number: int, dice: random.Random) -> list[str] | None:
        work = self.work(WORK[number % len(WORK)])
        one = work.begin("try-two")
        time.sleep(dice.uniform(0, 0.5 * work.seconds))
        other = work.begin("try-two")
        wrong = [text for ended in (other.end(), one.end()) if ended.code for text in unclear(ended)]
        return [f"{work.name}: {text}" for text in wrong + finished(work, "try-two")]

    def clock(self, number: int, dice: random.Random) -> list[str] | None:
        work, where = self.work(WORK[number % len(WORK)]), "try-clock"
        work.attempt(where, Operations(dice.randint(1, work.operations)))
        for path in Path(where).rglob("*"):
            os.utime(path, (2**32, 2**32))

        def set_back() -> None:
            now = time.time
            time.time = lambda: now() - 10**8

        ended = work.begin(where, None, set_back).end()
        wrong = [ended.said[-500:]] if ended.code else work.differences(where)
        return [f"{work.name}: {text}" for text in wrong]

    def cache(self, number: int, dice: random.Random) -> list[str] | None:
        self.work("language_model")
        folder = Path("../cache").absolute()
        words = ["generate", "calm/run", "--prompt", "the", "--max-tokens", "20", "--seed", "1"]
        words += ["--engine", "native"]

        def generated() -> Ended:
            return Attempt(words, None, lambda: os.environ.update(ELMAN_CACHE=str(folder))).end()

        expected = generated()
        libraries = sorted(folder.rglob("*.so"))
        if expected.code or not libraries:
            return [f"nothing was compiled: {expected.said[-300:]}"]
        chosen = dice.choice(libraries)
        content = bytearray(chosen.read_bytes())
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        chosen.unlink()
        match number % 4:
            case 0:
                chosen.write_bytes(content)
            case 1:
                chosen.write_bytes(content[: dice.randrange(len(content))])
            case 2:
                chosen.write_bytes(b"")
            case 3:
                chosen.mkdir()
        again = generated()
        same = (again.code, again.said) == (expected.code, expected.said)
        return [] if same else [f"{chosen.name}: {again.said[-300:]}"]


def mount(folder: str, size: int, again: bool = False, options: str = "rw") -> bool:
    """A disk of so many bytes in memory; False where this user cannot mount one."""
    command = ["mount", "-t", "tmpfs", "-o", f"{'remount,' if again else ''}{options},size={size}", "tmpfs", folder]
    if shutil.which("mount") is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def unmount(folder: str) -> None:
    subprocess.run(["umount", folder], capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)


KINDS = ("full", "tmpfs", "read-only", "deleted", "together", "clock", "cache")


def main() -> None:
    campaign = Campaign(parser("disk_full", __doc__, 10**6, KINDS).parse_args())
    warm_up()
    with tempfile.TemporaryDirectory() as place:
        disturbances = Disturbances(Path(place))
        left = dict.fromkeys(campaign.kinds, True)
        numbers = {kind: campaign.next.get(kind, 0) for kind in left}
        while campaign.more() and any(left.values()):
            for kind in [kind for kind, more in left.items() if more and campaign.more()]:
                case: Case = getattr(disturbances, kind.replace("-", "_"))
                wrong = case(numbers[kind], campaign.dice)
                numbers[kind] += 1
                if wrong is None:
                    left[kind], numbers[kind] = False, 0
                else:
                    campaign.tally(kind, *wrong)
                campaign.next[kind] = numbers[kind]
        os.chdir("/")
    campaign.end()


if __name__ == "__main__":
    main()
