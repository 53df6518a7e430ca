"""Training under torchrun on this machine: two processes over loopback."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from processes import HANG, environment, forked_python

from elman.runs import Run

started: list[subprocess.Popen] = []


def launch(
    folder: Path,
    recipe: dict,
    *options: str,
    restarts: int = 0,
    processes: int = 2,
    forked: bool = True,
    **variables: str,
) -> subprocess.Popen:
    """Starts torchrun in `folder`, which holds the data; the run is in `folder/run`. `variables` of the environment.

    `forked`: torchrun and its workers are forked from a process that has imported elman. A fork ends with its client.
    """
    (folder / "recipe.json").write_text(json.dumps(recipe))
    python = forked_python() if forked else [sys.executable]
    program = ["--no-python", "--", *python, "-m"] if forked else ["-m", "--"]
    command = [*python, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--max-restarts", str(restarts)]
    command += ["--monitor-interval", "0.1", "--shutdown-timeout", str(HANG), *program]
    command += ["elman", "train", "recipe.json", "--run", "run", *options]
    settings = environment(CUDA_VISIBLE_DEVICES="", ELMAN_TESTED_JOB=str(folder), **variables)
    with (folder / "log.txt").open("w") as log:
        job = subprocess.Popen(command, cwd=folder, env=settings, stdout=log, stderr=log)
    started.append(job)
    return job


def finish(job: subprocess.Popen, folder: Path) -> None:
    code = job.wait(timeout=HANG)
    assert code == 0, (folder / "log.txt").read_text()[-4000:]


def weights(run: Path) -> dict:
    return Run(run).last.load().weights


def workers(folder: Path) -> dict[int, int]:
    """The process ids of the running ranks of the job in `folder`, by rank."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            variables = dict(
                one.split("=", 1) for one in (process / "environ").read_text().split("\0") if one.count("=")
            )
            if variables.get("ELMAN_TESTED_JOB") == str(folder) and "RANK" in variables:
                found[int(variables["RANK"])] = int(process.name)
    return found
