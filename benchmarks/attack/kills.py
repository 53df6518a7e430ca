"""Kill work with SIGKILL at random times, resume it until it ends, and compare with work that was not disturbed.

    python -m benchmarks.attack.kills --count 1000

Trainings that are resumed, n-gram counting, races, and predictions of a table. All files left must be the same but for
times: weights, optimizer, random number generators, carried states, results, log, figures. Half of the kills come at a
random time, half right before a random file operation, to cover the short windows between two of them.
With no failure in n kills, fewer than 3/n of them fail, with 95 % confidence.
"""

import math
import os
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks.attack.attempts import Act, Attempt, Ended, Operations, rehearse, warm_up
from benchmarks.attack.campaign import Campaign, parser
from benchmarks.attack.kinds import BRIEF, KINDS, LONG, left

KILLS = 8  # of one piece of work at the most, then it may end
ATTACKED = [*LONG, *BRIEF, "race", "sweep", "predict"]


class Attacked:
    """One kind of work in a folder of its own, and what it leaves undisturbed."""

    def __init__(self, name: str, place: Path):
        self.name, self.kind, self.place = name, KINDS[name], place
        place.mkdir(parents=True)
        self.enter()
        self.kind.prepare()
        Path("rehearsal").mkdir()
        rehearse(self.kind.command(f"rehearsal/{self.kind.out}"))
        empty(Path("rehearsal"))
        began = time.monotonic()
        calm = self.attempt("calm")
        self.seconds, self.operations = time.monotonic() - began, calm.operations
        assert calm.code == 0, f"{name}: undisturbed work failed: {calm.said}"
        assert "bypasses" not in calm.said, f"{name}: {calm.said}"
        self.expected, self.listed = left(Path("calm")), {*os.listdir()}

    def enter(self) -> None:
        os.chdir(self.place)

    def begin(self, where: str, operations: Operations | None = None, first: Act = lambda: None) -> Attempt:
        """The work, with its output in this folder."""
        Path(where).mkdir(exist_ok=True)
        return Attempt(self.kind.command(f"{where}/{self.kind.out}"), operations, first)

    def attempt(self, where: str, operations: Operations | None = None, seconds: float = math.inf) -> Ended:
        return self.begin(where, operations).end(seconds)

    def differences(self, where: str, complete: bool = True) -> list[str]:
        """What finished work has left that undisturbed work has not, or the other way round; if there is nothing, what
        it left is removed. Where it need not be `complete`, files may be missing."""
        found = left(Path(where))
        keys = sorted(found.keys() | (self.expected.keys() if complete else set()))
        wrong = [key for key in keys if found.get(key, "absent") != self.expected.get(key, "absent")]
        wrong += sorted(name for name in {*os.listdir()} - self.listed if not name.startswith("try-"))
        if not wrong:
            empty(Path(where))
        return [f"differs or is left over: {', '.join(wrong)}"] if wrong else []


def empty(folder: Path) -> None:
    """Removes what is in a folder, and the folder, unless it is a disk of its own."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not folder.is_mount():
        folder.rmdir()


def kill_once(attacked: Attacked, campaign: Campaign, number: int) -> None:
    """Work that is killed up to `KILLS` times and then finishes."""
    dice, kills, code = campaign.dice, 0, None
    while code is None:
        seconds, last = math.inf, None
        if kills < KILLS and campaign.more():
            by_clock = dice.random() < 0.5
            seconds = dice.uniform(0, 0.6 * attacked.seconds) if by_clock else math.inf
            last = None if by_clock else dice.randint(1, max(1, 2 * attacked.operations // 3))
        ended = attacked.attempt(f"try-{number}", Operations(last), seconds)
        code = ended.code
        if code is None:
            kills += 1
            campaign.tally(attacked.name)
    wrong = [f"exit code {code}: {ended.said[-2000:]}"] if code else attacked.differences(f"try-{number}")
    campaign.report(attacked.name, *(f"work {number}, after {kills} kills: {text}" for text in wrong))


def main() -> None:
    campaign = Campaign(parser("kills", __doc__, 1000, ATTACKED).parse_args())
    warm_up()
    with tempfile.TemporaryDirectory() as place:
        attacked = [Attacked(name, Path(place) / name / "work") for name in campaign.kinds]
        number = 0
        while campaign.more():  # in turn, so that every kind has its share of the time
            number += 1
            one = attacked[number % len(attacked)]
            one.enter()
            kill_once(one, campaign, number)
        os.chdir("/")
    campaign.end()


if __name__ == "__main__":
    main()
