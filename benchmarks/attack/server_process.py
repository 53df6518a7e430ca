"""A server in a process of its own: its start, what it takes of the machine, and honest requests to it."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PAGE = os.sysconf("SC_PAGE_SIZE")
START = 120.0  # seconds that models may take to load


class ServerProcess:
    """`elman serve` on a free port of this machine, or on a given one; its log is in `folder`."""

    def __init__(self, folder: Path, *words: Any, port: int = 0, token: str | None = None, environ: Any = None):
        folder.mkdir(parents=True, exist_ok=True)
        self.log, out = folder / "log.txt", folder / "out.txt"
        arguments = [sys.executable, "-m", "elman", "serve", *map(str, words), "--port", str(port)]
        with open(out, "w") as said, open(self.log, "a") as log:
            self.process = subprocess.Popen(arguments, stdout=said, stderr=log, env={**os.environ, **(environ or {})})
        try:
            shown = self._shown(out)
            self.port = int(re.search(r"on https?://[^ ]+:(\d+)", shown)[1])  # type: ignore[index]
            found = re.search(r"^TOKEN=(\S+)$", shown, re.MULTILINE)
            self.token = token or (found[1] if found else "")
            while self.status("GET", "/health") != 200:
                self._wait()
        except BaseException:
            self.kill()
            raise

    def _shown(self, out: Path) -> str:
        while "curl " not in (shown := out.read_text()):
            self._wait()
        return shown

    def _wait(self) -> None:
        if self.process.poll() is not None:
            raise RuntimeError(f"the server ended: {self.log.read_text()[-2000:]}")
        time.sleep(0.05)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            given = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **headers}
            connection.request(method, path, None if body is None else json.dumps(body), given)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def status(self, method: str, path: str) -> int:
        try:
            return self.ask(method, path)[0]
        except OSError:
            return 0

    def json(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.ask(method, path, body)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {answer[:300]!r}")
        return json.loads(answer)

    # What it takes

    def resident(self) -> int:
        """Bytes of memory."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def running(self) -> float:
        """Requests that run or wait."""
        text = self.ask("GET", "/metrics")[1].decode()
        return sum(float(one) for one in re.findall(r"^elman_num_requests_\w+{[^}]*} (\S+)$", text, re.MULTILINE))

    def errors(self) -> list[str]:
        """Entries of the log that tell of something unexpected."""
        return [line for line in self.log.read_text().splitlines() if '"level": "error"' in line or "Error" in line]

    # Its end

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(self, *_: Any) -> None:
        self.kill()


def words_of(settings: dict[str, Any]) -> Sequence[str]:
    """Settings as options of `elman serve`."""
    return [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
