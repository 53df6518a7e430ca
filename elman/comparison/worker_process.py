"""A worker that reads the package once and forks a process for each training, which then starts at once.

It takes a run folder a line, and answers two lines: the number of the process, and how it ended. Where processes cannot
be forked it is started for a single folder. Files of Python that it is given are read first: they may register layers.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from elman.comparison.user_modules import read_modules
from elman.comparison.workers import outcome
from elman.errors import ElmanError
from elman.training.loop import INTERRUPTED


def main(arguments: Sequence[str] | None = None) -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--read", action="append", default=[], help="a file of Python to read first")
    reader.add_argument("--folder", type=Path, help="train this run alone")
    given = reader.parse_args(arguments)
    if hasattr(
        signal, "pthread_sigmask"
    ):  # threads of a cluster's processes block signals, and so would their children
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    read_modules(given.read)
    if given.folder:
        train_alone(given.folder)
    serve()


def serve() -> None:
    """Until nobody asks any more."""
    from matplotlib.backends import backend_agg, backend_svg  # noqa: F401  (curves are drawn at the end of a run)

    import elman.pipeline.session  # noqa: F401

    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            folder = Path(line.rstrip("\n"))
            nothing = os.open(os.devnull, os.O_RDWR)
            log = os.open(folder / "train.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for place, file in enumerate((nothing, nothing, log)):
                os.dup2(file, place)
            train_alone(folder)
        print(process, flush=True)
        print(json.dumps(outcome(process)), flush=True)


def train_alone(folder: Path) -> NoReturn:
    """As `elman train --run FOLDER --resume` does, and the end of this process, whatever happens."""
    from elman.pipeline.session import train

    code = 1
    try:
        reason = ""
        for report in train(run=folder, resume=True):
            reason = report.values["reason"] if report.kind == "end" else reason
        code = 130 if reason == INTERRUPTED else 0
    except KeyboardInterrupt:
        code = 130
    except ElmanError as error:
        print(f"elman: {error}", file=sys.stderr)
    except BaseException:  # a fork must not go on as its parent
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
