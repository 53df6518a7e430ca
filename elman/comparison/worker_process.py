"""The process behind `ForkingWorker`: imports the package once, then forks a process for each training.

Reads the path of a run folder per line on stdin, answers with two lines: process id, then exit code and usage as JSON.
With --folder it trains that run only. Users' Python files are imported first: they may register layers or tasks.
"""

import argparse
import gc
import json
import os
import select
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from elman.comparison.user_modules import read_modules
from elman.comparison.workers import wait_for
from elman.errors import ElmanError
from elman.files import open_log
from elman.processes import STOP_SIGNALS, end_with_parent
from elman.training.loop import INTERRUPTED


def main(arguments: Sequence[str] | None = None) -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--read", action="append", default=[], help="a Python file to import first")
    reader.add_argument("--folder", type=Path, help="train this run only")
    given = reader.parse_args(arguments)
    if hasattr(signal, "pthread_sigmask"):  # Ray's worker threads block signals, and children inherit that
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    read_modules(given.read)
    if given.folder:
        train_alone(given.folder)
    serve()


def serve() -> None:
    """Fork trainings until stdin is closed."""
    from matplotlib.backends import backend_agg, backend_svg  # noqa: F401  (for learning curves at the end of a run)

    import elman.pipeline.session  # noqa: F401

    gc.freeze()  # garbage collection in a fork would copy the pages of all that is imported
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            folder = Path(line.rstrip("\n"))
            nothing = os.open(os.devnull, os.O_RDWR)
            log = open_log(folder / "train.log")
            for place, file in enumerate((nothing, nothing, log)):
                os.dup2(file, place)
            train_alone(folder)
        print(process, flush=True)
        _end_with_race(process)
        print(json.dumps(wait_for(process)), flush=True)


def _end_with_race(process: int) -> None:
    """Wait for the end of a training. Where the race ends first, which closes stdin, the training saves and ends."""
    ended = os.pidfd_open(process)
    if ended not in select.select([ended, sys.stdin], [], [])[0]:
        os.kill(process, signal.SIGTERM)
        wait_for(process)
        os._exit(1)
    os.close(ended)


def train_alone(folder: Path) -> NoReturn:
    """As `elman train --run FOLDER --resume` does; always ends this process."""
    from elman.pipeline.session import iterate

    code = 1
    end_with_parent()
    try:
        reason = ""
        for report in iterate(run=folder, resume=True):
            reason = report.values["reason"] if report.kind == "end" else reason
        code = 130 if reason == INTERRUPTED else 0
    except KeyboardInterrupt:
        code = 130
    except ElmanError as error:
        print(f"elman: {error}", file=sys.stderr)
    except BaseException:  # a forked child must not continue its parent's code
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
