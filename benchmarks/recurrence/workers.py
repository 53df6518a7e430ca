"""Processes that do one job after another, so that what breaks a device or never ends takes no other job with it."""

import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

LAST = "last"
COMMAND = [sys.executable, "-m", "benchmarks.recurrence", "--worker"]


class Worker:
    """A process that is started when it is first asked, and again after it has died."""

    def __init__(self, command: list[str] = COMMAND):
        self.command = command
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        if self.process is not None:
            return
        self.complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.complaints, text=True
        )
        self.answers: queue.Queue[str] = queue.Queue()
        self.listener = threading.Thread(target=_listen, args=(self.process, self.answers), daemon=True)
        self.listener.start()

    def ask(self, job: Mapping[str, Any], limit: float) -> dict[str, Any]:
        """What the process answers; if it dies or takes longer than `limit` seconds, how it failed."""
        self.start()
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            print(json.dumps(job), file=self.process.stdin, flush=True)
            answer = self.answers.get(timeout=max(limit, 0.1))
        except queue.Empty:
            self.close()
            return {"failed": f"it took longer than {limit:.0f} s"}
        except BrokenPipeError:
            answer = ""
        if answer:
            found = json.loads(answer)
            if found.pop(LAST, False):
                self.close()
            return found
        code = self.process.wait()
        self.complaints.seek(0)
        complaint = self.complaints.read().strip()[-400:]
        self.close()
        return {"failed": f"its process ended with code {code}: {complaint}"}

    def close(self) -> None:
        if self.process is None:
            return
        process, self.process = self.process, None
        process.kill()
        self.listener.join()
        self.complaints.close()
        with suppress(BrokenPipeError), process:  # waits for its end and closes its pipes
            pass


def _listen(process: subprocess.Popen[str], answers: queue.Queue[str]) -> None:
    """Lines of JSON are answers; an empty one says that no more will come."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            answers.put(line)
    answers.put("")


def serve(jobs: Mapping[str, Callable[..., dict[str, Any]]], healthy: Callable[[], None]) -> None:
    """The other side: answers until nothing more is asked, or until `healthy` raises after a job has failed."""
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = jobs[job.pop("job")](**job)
        except Exception as problem:
            answer = {"failed": f"{type(problem).__name__}: {str(problem)[:500]}"}
            try:
                healthy()
            except Exception:
                answer[LAST] = True  # no job could run here any more
        print(json.dumps(answer), flush=True)
