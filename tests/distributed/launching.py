"""Training under torchrun on this machine: two processes over loopback."""

import json
import subprocess
import sys
from pathlib import Path

from processes import HANG, environment

from elman.runs import Run

started: list[subprocess.Popen] = []


def launch(folder: Path, recipe: dict, *options: str, restarts: int = 0, processes: int = 2) -> subprocess.Popen:
    """Starts torchrun in `folder`, which holds the data; the run is in `folder/run`."""
    (folder / "recipe.json").write_text(json.dumps(recipe))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--max-restarts", str(restarts)]
    command += ["--monitor-interval", "0.1", "-m", "--", "elman", "train", "recipe.json", "--run", "run", *options]
    settings = environment(CUDA_VISIBLE_DEVICES="")
    with (folder / "log.txt").open("w") as log:
        job = subprocess.Popen(command, cwd=folder, env=settings, stdout=log, stderr=log)
    started.append(job)
    return job


def finish(job: subprocess.Popen, folder: Path) -> None:
    code = job.wait(timeout=HANG)
    assert code == 0, (folder / "log.txt").read_text()[-4000:]


def weights(run: Path) -> dict:
    return Run(run).last.load().weights


def workers(job: subprocess.Popen) -> list[int]:
    """The process ids of the ranks that are running."""
    return [int(pid) for file in Path(f"/proc/{job.pid}/task").glob("*/children") for pid in file.read_text().split()]
