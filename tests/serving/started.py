"""A server in a process of its own, and what a client and an operator see of it."""

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess

from processes import environment, forked_python, wait_for


class Started:
    """A server on a free port; `log` has what it wrote to stderr."""

    def __init__(self, folder, *words, code=None):
        self.out, self.err = folder / "out.txt", folder / "err.txt"
        command = [*forked_python(), "-c", code] if code else [*forked_python(), "-m", "elman", "serve"]
        with open(self.out, "w") as out, open(self.err, "w") as err:
            arguments = [*command, *map(str, words)]
            self.process = subprocess.Popen(arguments, stdout=out, stderr=err, env=environment(), cwd=folder)
        wait_for(lambda: "curl " in self.out.read_text(), self.process)
        shown = self.out.read_text()
        self.port = int(re.search(r"on https?://[^:]+:(\d+)", shown)[1])
        found = re.search(r"^TOKEN=(\S+)$", shown, re.MULTILINE)
        self.token = found[1] if found else ""

    @property
    def log(self):
        return [json.loads(line) for line in self.err.read_text().splitlines()]

    def events(self):
        return [entry["event"] for entry in self.log]

    @property
    def pid(self):
        """Of the server itself, not of what starts it here."""
        return next(entry["process"] for entry in self.log if entry["event"] == "ready")

    def ready(self):
        wait_for(lambda: "ready" in self.events(), self.process)
        return self

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **headers}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        found = answer.status, answer.read(), dict(answer.getheaders())
        connection.close()
        return found

    def raw(self, data, wait=0.0):
        """What comes back until the server closes the connection, or for some seconds."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait or 60) as connection:
            connection.sendall(data)
            found = b""
            with contextlib.suppress(TimeoutError, ConnectionResetError):
                while part := connection.recv(65536):
                    found += part
            return found

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(60)
