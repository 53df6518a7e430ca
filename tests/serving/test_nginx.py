"""The configuration of nginx that docs/guides/deploy.md shows, in front of a server."""

import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
from contextlib import ExitStack, contextmanager
from getpass import getuser
from pathlib import Path

import httpx
import pytest
from processes import wait_for
from served import SECRET

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "deploy.md").read_text()
(SHOWN,) = re.findall(r"^```nginx\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
NAME, CLIENT = "models.example", "127.0.0.2"
MANY = 4096
SERVER = """
import time
import elman
from elman.serving.scheduler import Scheduler
step = Scheduler._step
def slow(self, generations):
    time.sleep(0.02)
    step(self, generations)
Scheduler._step = slow
elman.serve({run!r}, port=0, behind_proxy=True, allowed_hosts=[{name!r}], token_file={tokens!r})
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("nginx", path="/usr/sbin:/usr/bin"), reason="nginx is not installed"),
    pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl to make a certificate"),
]


def free_port():
    with socket.create_server((CLIENT, 0)) as one:
        return one.getsockname()[1]


@contextmanager
def proxy(folder, port):
    """nginx in front of a port: its own port, once it listens."""
    own = free_port()
    shown = SHOWN.replace("listen 443", f"listen 127.0.0.1:{own}").replace(":8000;", f":{port};")
    shown = re.sub(r"/etc/ssl/[\w.]+\.(pem|key)", rf"{folder}/proxy.\1", shown)
    assert all(part in shown for part in (f":{own} ", f":{port};", "/proxy.pem", "/proxy.key", NAME))
    paths = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    http = f"http {{ access_log off; {paths}\n{shown}}}\n"
    text = f"user {getuser()}; daemon off; pid {folder}/pid; error_log stderr; events {{}} {http}"
    (folder / "nginx.conf").write_text(text)
    make = f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN={NAME} -addext subjectAltName=DNS:{NAME}"
    subprocess.run(
        [*make.split(), "-keyout", "proxy.key", "-out", "proxy.pem"], cwd=folder, check=True, capture_output=True
    )
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin")
    with (folder / "nginx.log").open("w") as log:
        process = subprocess.Popen([nginx, "-p", folder, "-c", folder / "nginx.conf"], stderr=log)
    try:
        wait_for(lambda: answers(own), process)
        yield own
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    assert "[emerg]" not in (folder / "nginx.log").read_text()


def answers(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def proxied(start, runs, tmp_path):
    """The server, and a client that reaches it through nginx."""
    (tmp_path / "tokens").write_text(f"ann:{SECRET}\n")
    (tmp_path / "tokens").chmod(0o600)
    names = {"run": str(runs["language-model"]), "name": NAME, "tokens": str(tmp_path / "tokens")}
    server = start(code=SERVER.format(**names)).ready()
    server.token = SECRET
    with ExitStack() as stack:
        port = stack.enter_context(proxy(tmp_path, server.port))
        context = ssl.create_default_context(cafile=str(tmp_path / "proxy.pem"))
        transport = httpx.HTTPTransport(verify=context, local_address=CLIENT)
        client = httpx.Client(
            base_url=f"https://127.0.0.1:{port}", transport=transport, timeout=60,
            headers={"Host": NAME, "Authorization": f"Bearer {SECRET}"},
        )  # fmt: skip
        client = stack.enter_context(client)
        yield (
            server,
            lambda method, path, **more: client.stream(method, path, extensions={"sni_hostname": NAME}, **more),
        )


def figure(server, name):
    """One of /metrics, asked of the server itself."""
    text = server.ask("GET", "/metrics")[1].decode()
    return sum(float(one) for one in re.findall(rf"^elman_{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE))


def test_streams_limits_and_checks_hold_behind_nginx(proxied):
    server, ask = proxied

    def status(method, path, **more):
        with ask(method, path, **more) as answer:
            return answer.status_code, answer.read()

    assert status("GET", "/health")[0] == 200
    assert status("GET", "/v1/models", headers={"Authorization": "Bearer no"})[0] == 401
    assert status("GET", "/v1/models", headers={"Host": "evil.example"})[0] == 421
    assert status("GET", "/v1/models", headers={"Origin": f"https://{NAME}"})[0] == 200
    assert status("GET", "/v1/models", headers={"Origin": "https://evil.example"})[0] == 403
    assert status("GET", "/v1/models", headers={"X-Forwarded-For": "192.0.2.1"})[0] == 200
    wait_for(lambda: len([one for one in server.log if one.get("path") == "/v1/models"]) == 5)
    assert {entry["client"] for entry in server.log if entry.get("path") == "/v1/models"} == {CLIENT}
    body = {"prompt": "the", "max_tokens": 4}
    code, answer = status("POST", "/v1/completions", json={**body, "user": "a" * 2_000_000})
    assert (code, json.loads(answer)["error"]["type"]) == (413, "invalid_request_error")  # of the server
    code, answer = status("POST", "/v1/completions", json={**body, "user": "a" * 17_000_000})
    assert (code, answer[:6]) == (413, b"<html>")  # of nginx
    assert len(json.loads(status("POST", "/v1/completions", json=body)[1])["choices"]) == 1


def test_text_comes_as_it_is_written_and_a_client_that_leaves_stops_it(proxied):
    """Catches a proxy that buffers: then the first event comes when nothing runs any more."""
    server, ask = proxied
    body = {"prompt": "the", "max_tokens": MANY, "ignore_eos": True, "stream": True}
    with ask("POST", "/v1/completions", json=body) as answer:
        events = (line for line in answer.iter_lines() if line)
        assert next(events).startswith("data: {")
        assert figure(server, "num_requests_running") == 1
        assert next(events).startswith("data: {")
    wait_for(lambda: figure(server, "num_requests_running") == 0)
    assert figure(server, "generation_tokens_total") < MANY
    with ask("POST", "/v1/completions", json={**body, "max_tokens": 3}) as answer:
        *_, last = (line for line in answer.iter_lines() if line)
    assert last == "data: [DONE]"
