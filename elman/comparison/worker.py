"""A worker that reads the package once and forks a process for each training, which then starts at once.

It takes a run folder a line, and answers two lines: the number of the process, and how it ended.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from elman.errors import ElmanError
from elman.training.loop import INTERRUPTED

KILOBYTE = 1 if sys.platform == "darwin" else 1024  # what the system counts memory in


def serve() -> None:
    """Until nobody asks any more."""
    from matplotlib.backends import backend_agg, backend_svg  # noqa: F401  (curves are drawn at the end of a run)

    import elman.pipeline.session  # noqa: F401

    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            _train(Path(line.rstrip("\n")))
        print(process, flush=True)
        print(json.dumps(outcome(process)), flush=True)


def outcome(process: int) -> dict[str, Any]:
    """Waits for a child: its exit code, and what it took."""
    _, status, used = os.wait4(process, 0)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "peak_bytes": used.ru_maxrss * KILOBYTE,
        "cpu_seconds": used.ru_utime + used.ru_stime,
    }


def _train(folder: Path) -> NoReturn:
    """As `elman train --run FOLDER --resume` does, with all that is said in the run's own log."""
    from elman.pipeline.session import train

    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        log = os.open(folder / "train.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for place, file in enumerate((nothing, nothing, log)):
            os.dup2(file, place)
        reason = ""
        for report in train(run=folder, resume=True):
            reason = report.values["reason"] if report.kind == "end" else reason
        code = 130 if reason == INTERRUPTED else 0
    except KeyboardInterrupt:
        code = 130
    except ElmanError as error:
        print(f"elman: {error}", file=sys.stderr)
    except BaseException:  # whatever it is, it ends here: a fork must not go on as its parent
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
