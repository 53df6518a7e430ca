"""Kill work before every single file operation, resume it, and compare with work that was not disturbed.

    python -m benchmarks.attack.operations

Operations are: open, create, write, sync, truncate, rename, remove, make and list folders, of training for every task,
n-gram counting, a race, a sweep and predictions of a table. Instead of pictures, what they show is written: drawing
takes longer than all else. A campaign that runs out of time goes on where it stopped; one with a `--count` takes so
many operations, evenly spaced.
"""

import os
import tempfile
from pathlib import Path

from benchmarks.attack import attempts
from benchmarks.attack.attempts import Operations, warm_up
from benchmarks.attack.campaign import Campaign, parser
from benchmarks.attack.kills import Attacked
from benchmarks.attack.kinds import BRIEF

EVERY = 10**6
ATTACKED = [*BRIEF, "race", "short sweep", "predict"]


def kill_at(attacked: Attacked, number: int) -> list[str] | None:
    """What went wrong after a kill before this operation; None where there is no such operation."""
    where = f"try-{number}"
    ended = attacked.attempt(where, Operations(number))
    if ended.code is not None:
        return None if ended.operations < number else [f"operation {number}: not killed: {ended.said[-500:]}"]
    again = attacked.attempt(where)
    if again.code:
        return [f"operation {number}: resuming ends with code {again.code}: {again.said[-1000:]}"]
    return [f"operation {number}: {text}" for text in attacked.differences(where)]


def main() -> None:
    campaign = Campaign(parser("operations", __doc__, EVERY, ATTACKED).parse_args())
    sampled, share = campaign.count < EVERY, -(-campaign.count // len(campaign.kinds))
    warm_up()
    attempts.drawing = False  # twice as fast; pictures are compared after kills at random moments
    with tempfile.TemporaryDirectory() as place:
        for name in campaign.kinds:
            if not campaign.more():
                break
            attacked = Attacked(name, Path(place) / name / "work")
            number = 1 if sampled else campaign.next.get(name, 1)
            step = max(1, attacked.operations // share) if sampled else 1
            print(f"{name}: {attacked.operations} operations, from {number}", flush=True)
            while campaign.more() and campaign.counts[name] < share:
                wrong = kill_at(attacked, number)
                number = 1 if wrong is None else number + step  # again from the first when all were tried
                if not sampled:
                    campaign.next[name] = number
                if wrong is None:
                    break
                campaign.tally(name, *wrong)
        os.chdir("/")
    campaign.end()


if __name__ == "__main__":
    main()
