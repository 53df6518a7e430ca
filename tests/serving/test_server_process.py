"""The server as a process: what it prints, its connections, and how it ends."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading

import openai
import pytest
from conftest import train
from processes import run_elman, run_python, wait_for
from served import SECRET

from elman.errors import ElmanError
from elman.serving.run import run_server
from elman.serving.settings import ServeConfig


@pytest.mark.slow
def test_the_printed_command_works_and_the_end_is_orderly(start, runs):
    server = start(runs["classify"], "--port", 0).ready()
    shown = server.out.read_text()
    command = shown.splitlines()[-1]
    assert command.startswith("curl http://127.0.0.1:")
    assert len(server.token) >= 43  # 256 bits
    done = subprocess.run(
        ["bash", "-c", f"TOKEN={server.token}; {command} --silent --fail"],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert json.loads(done.stdout)["data"][0]["label"] in ("a", "b")
    assert server.ask("GET", "/health", Authorization="")[0] == 200
    assert server.stop() == 0
    assert server.events()[-1] == "ended"
    assert server.token not in server.err.read_text()
    assert "a text" not in server.err.read_text()
    requests = [entry for entry in server.log if entry["event"] == "request"]
    assert [one["status"] for one in requests] == [200, 200]
    assert {"time", "level", "request", "method", "path", "seconds", "owner", "client"} <= requests[0].keys()
    with pytest.raises(ConnectionRefusedError):
        server.ask("GET", "/health")


@pytest.mark.slow
def test_openais_client_understands_models_and_errors(start, runs):
    server = start(runs["classify"], "--port", 0).ready()
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=server.token, max_retries=0)
    assert [one.id for one in client.models.list()] == ["classify"]
    assert client.models.retrieve("classify").owned_by == "elman"
    with pytest.raises(openai.NotFoundError, match="no model 'other'") as found:
        client.models.retrieve("other")
    assert (found.value.code, found.value.param) == ("model_not_found", "model")
    wrong = openai.OpenAI(base_url=client.base_url, api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        wrong.models.list()
    client.close()
    wrong.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_accepted_requests_end_before_the_process_does(start, runs, number):
    """Catches answers lost at the end, and the exit code of a signal."""
    server = start(runs["classify"], code=SLOW.format(run=str(runs["classify"]), seconds=1.0, drain=30)).ready()
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(server.ask("POST", "/classify", {"input": "x"})[0]))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    wait_for(lambda: running(server) == 3)
    assert server.stop(number) == 0
    for thread in threads:
        thread.join()
    assert answers == [200] * 3
    assert server.log[-1]["unfinished"] == 0


@pytest.mark.slow
def test_what_does_not_end_in_time_gets_an_error(start, runs):
    server = start(code=SLOW.format(run=str(runs["classify"]), seconds=3.0, drain=0.2)).ready()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(server.ask("POST", "/classify", {"input": "x"})))
    thread.start()
    wait_for(lambda: running(server) == 1)
    assert server.stop() == 0
    thread.join()
    ((status, body, headers),) = answers
    assert (status, json.loads(body)["error"]["code"]) == (503, "shutting_down")
    assert headers["retry-after"] == "5"
    assert server.log[-1]["unfinished"] == 1


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(start, runs):
    server = start(code=SLOW.format(run=str(runs["classify"]), seconds=60.0, drain=60)).ready()
    thread = threading.Thread(target=ignore_errors, args=(server,))
    thread.start()
    wait_for(lambda: running(server) == 1)
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: "ending" in server.events())
    assert server.stop() == 1
    thread.join()


def ignore_errors(server):
    with contextlib.suppress(OSError, http.client.HTTPException):
        server.ask("POST", "/classify", {"input": "x"})


SLOW = """
import time
import elman
from elman.pipeline.trained_model import TrainedModel
predict = TrainedModel.predict
def slow(self, lines, **more):
    print("predicting", flush=True)
    time.sleep({seconds})
    return predict(self, lines, **more)
TrainedModel.predict = slow
elman.serve({run!r}, port=0, drain_seconds={drain})
"""


def running(server):
    """Requests that the server holds."""
    text = server.ask("GET", "/metrics")[1].decode()
    return sum(float(one) for one in re.findall(r"^elman_num_requests_\w+{[^}]*} (\S+)$", text, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs SIGHUP")
def test_sighup_loads_what_was_trained_meanwhile(start, tmp_path):
    from elman.pipeline import iterate

    run = train("classify", tmp_path)
    server = start(run, "--port", 0).ready()
    before = server.ask("POST", "/classify", {"input": "this is x"})[1]
    for _ in iterate(run=run, resume=True, overrides={"training.max_steps": 30}):
        pass
    os.kill(server.pid, signal.SIGHUP)
    wait_for(lambda: "reloaded" in server.events(), server.process)
    assert next(entry for entry in server.log if entry["event"] == "reloaded")["models"] == ["classify"]
    status, after, _ = server.ask("POST", "/classify", {"input": "this is x"})
    assert status == 200
    assert after != before
    assert server.stop() == 0


@pytest.mark.slow
def test_tokens_of_a_file_are_kept(start, runs, tmp_path):
    path = tmp_path / "tokens"
    server = start(runs["classify"], "--port", 0, "--token-file", path).ready()
    assert path.stat().st_mode & 0o777 == 0o600
    token = path.read_text().strip()
    assert token not in server.out.read_text()
    server.token = token
    assert server.ask("GET", "/v1/models")[0] == 200
    assert server.stop() == 0
    path.write_text(f"ann:{SECRET}\n")
    server = start(runs["classify"], "--port", 0, "--token-file", path).ready()
    shown = server.out.read_text()
    assert SECRET not in shown
    *_, line, _ = shown.splitlines()
    printed = subprocess.run(["bash", "-c", f"{line}; echo $TOKEN"], check=True, capture_output=True, text=True)
    assert printed.stdout == f"{SECRET}\n"
    server.token = SECRET
    assert server.ask("GET", "/v1/models")[0] == 200
    assert server.ask("GET", "/v1/models", Authorization=f"Bearer {token}")[0] == 401
    server.stop()
    assert "ann" in [entry.get("owner") for entry in server.log]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl to make a certificate")
def test_tls_is_spoken(start, runs, tmp_path):
    request = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    subprocess.run(
        [*request.split(), "-keyout", "key.pem", "-out", "cert.pem"], cwd=tmp_path, check=True, capture_output=True
    )
    words = ["--tls-cert", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem"]
    server = start(runs["classify"], "--port", 0, *words).ready()
    context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    for origin, status in (("https", 200), ("http", 403)):
        connection = http.client.HTTPSConnection("localhost", server.port, timeout=60, context=context)
        headers = {"Authorization": f"Bearer {server.token}", "Origin": f"{origin}://localhost:{server.port}"}
        connection.request("GET", "/v1/models", headers=headers)
        assert connection.getresponse().status == status
        connection.close()
    assert server.stop() == 0


@pytest.mark.slow
def test_what_is_wrong_ends_in_one_sentence(runs, tmp_path):
    def ended(*words):
        found = run_elman("serve", *map(str, words), cwd=tmp_path)
        assert found.stdout == ""
        assert found.stderr.count("\n") == 1, found.stderr
        return found.returncode, found.stderr

    assert ended(tmp_path / "none")[0] == 1
    assert ended(runs["classify"], "--host", "0.0.0.0") == (
        2,
        "elman: host 0.0.0.0 can be reached from other machines, and tokens would pass the network as plain text: give "
        "tls_cert and tls_key, or behind_proxy if a proxy terminates TLS, or listen on 127.0.0.1\n",
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, text = ended(runs["classify"], "--port", port)
    assert code == 2
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use" in text


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl to make certificates")
def test_what_cannot_be_served_is_not_announced(runs, tmp_path, monkeypatch):
    """Catches an address and a token that are printed before a file is found to be wrong."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("elman.serving.log.log_to_stderr", lambda level: None)
    for name in ("one", "two"):
        make = f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=h -keyout {name}.key -out {name}.pem"
        subprocess.run(make.split(), check=True, capture_output=True)
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("text")
    (tmp_path / "template.yaml").write_text("user: 3\n")
    wrong = [
        ({"tls_cert": "one.pem", "tls_key": "two.key"}, "one.pem and two.key .* do not belong together"),
        ({"tls_cert": "text", "tls_key": "one.key"}, "text and one.key .* one is no PEM file"),
        ({"tls_cert": "none.pem", "tls_key": "one.key"}, "none.pem: cannot be read: No such file"),
        ({"state_key": "text"}, "text: a key has 32 bytes or more, but this one has 4"),
        ({"chat_template": "template.yaml"}, "template.yaml.user: input should be a valid string"),
        ({"sessions": "text"}, "text: cannot be the folder of sessions"),
        ({"token_file": "folder"}, "folder: cannot read the tokens: Is a directory"),
        ({"device": "gpu"}, "device: 'gpu' is none of auto, cpu, cuda, mps"),
        ({"ray": "127.0.0.1:1"}, "ray 127.0.0.1:1: no cluster answers there"),
    ]
    said = []
    for settings, message in wrong:
        with pytest.raises(ElmanError, match=message):
            run_server((runs["classify"],), ServeConfig.make({"port": 0, **settings}), said.append)
    assert said == []


def test_a_missing_extra_is_named():
    code = (
        "import sys\n"
        "for name in ('fastapi', 'uvicorn', 'starlette'): sys.modules[name] = None\n"
        "import elman.serving.run as run\n"
        "run.find_spec = lambda name: None\n"
        "from elman.cli.main import main\n"
        "main(['serve', 'runs/mine'])"
    )
    found = run_python("-c", code)
    assert found.returncode == 1
    assert found.stderr == "elman: the server needs the package 'fastapi': pip install 'elman[serve]'\n"


# Connections


@pytest.fixture
def tight(start, runs):
    """A server with low limits on connections."""
    words = ["--header-seconds", 0.3, "--body-seconds", 0.3, "--idle-seconds", 1, "--connections", 4]
    return start(runs["classify"], "--port", 0, *words).ready()


HOSTILE = {
    "no HTTP": (b"\x00\x01\r\n\r\n", 400),
    "two lengths": (b"POST /classify HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400),
    "length and chunks": (
        b"POST /classify HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
    ),
    "a folded header": (b"GET /health HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", 400),
    "a header without name": (b"GET /health HTTP/1.1\r\nHost: h\r\n: c\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "a tunnel": (b"CONNECT a:1 HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    "an address": (b"GET http://evil/health HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    "a userinfo": (b"GET @evil/health HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    "no ASCII": ("GET /é HTTP/1.1\r\nHost: h\r\n\r\n".encode(), 400),
    "a zero": (b"GET /a\x00b HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    "no Host": (b"GET /health HTTP/1.0\r\n\r\n", 421),
    "another Host": (b"GET /health HTTP/1.1\r\nHost: evil\r\nConnection: close\r\n\r\n", 421),
    "many headers": (b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 10_000 + b"\r\n", 431),
    "a header without end": (b"GET /health HTTP/1.1\r\nA: " + b"a" * 100_000, 431),
    "a path without end": (b"GET /" + b"a" * 100_000, 431),
}  # fmt: skip


@pytest.mark.slow
def test_hostile_connections_are_refused_and_the_server_goes_on(start, runs):
    server = start(runs["classify"], "--port", 0).ready()
    for name, (data, status) in HOSTILE.items():
        found = server.raw(data)
        assert found.startswith(b"HTTP/1.1 %d " % status), (name, found[:80])
        head, _, body = found.partition(b"\r\n\r\n")
        assert b"x-content-type-options: nosniff" in head
        assert len(body) <= 4096
        assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}, name
    for path in ("//health", "/health/../metrics", "/health%2f..%2fmetrics", "/%2e%2e/metrics", "/health;/metrics"):
        request = f"GET {path} HTTP/1.1\r\nHost: localhost:{server.port}\r\nConnection: close\r\n\r\n"
        assert server.raw(request.encode()).startswith(b"HTTP/1.1 401 "), path
    assert server.ask("GET", "/health")[0] == 200
    assert not [entry for entry in server.log if entry["level"] == "error"]


@pytest.mark.slow
def test_who_sends_too_much_reads_why(start, runs):
    """And may go on. Catches a connection that is closed before all has come, whose answer is then lost on the way."""
    server = start(runs["classify"], "--port", 0).ready()
    head = b"Host: localhost:%d\r\nAuthorization: Bearer %s\r\n" % (server.port, server.token.encode())
    post = b"POST /classify HTTP/1.1\r\n" + head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    found = server.raw(
        post % 9_000_000 + b" " * 9_000_000 + b"GET /health HTTP/1.1\r\nConnection: close\r\n" + head + b"\r\n"
    )
    assert found.startswith(b"HTTP/1.1 413 ")
    assert b"HTTP/1.1 200 OK" in found
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(post % 90_000_000)
        with pytest.raises(OSError, match=r"Broken pipe|reset"):  # which has an end
            connection.sendall(b" " * 90_000_000)


@pytest.mark.slow
def test_a_slow_client_is_disconnected_and_holds_up_nobody(tight):
    """One byte at a time, in headers and in a body, and again after an answer; or none at all."""
    for data in (b"", b"GET /health HTTP/1.1\r\nHost: h\r\n"):
        assert tight.raw(data).startswith(b"HTTP/1.1 408 ")
    host = b"Host: localhost:%d\r\nAuthorization: Bearer %s\r\n" % (tight.port, tight.token.encode())
    post = b"POST /classify HTTP/1.1\r\n" + host + b"Content-Type: application/json\r\nContent-Length: 900000\r\n\r\n"
    refused = b"POST /none HTTP/1.1\r\n" + host + b"Content-Length: 900000\r\nContent-Type: application/json\r\n\r\n"
    for begin in (b"", post, refused):
        with socket.create_connection(("127.0.0.1", tight.port), timeout=60) as connection:
            connection.sendall(begin)
            wait_for(lambda connection=connection: is_closed(connection))
            assert tight.ask("GET", "/health")[0] == 200


def is_closed(connection):
    """Whether the other side has closed it; else one more byte is sent."""
    try:
        connection.sendall(b"a")
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


@pytest.mark.slow
def test_chunks_and_trailers_without_end_are_cut_off(tight):
    """Which no body grows by."""
    host = b"Host: localhost:%d\r\nAuthorization: Bearer %s\r\n" % (tight.port, tight.token.encode())
    head = (
        b"POST /classify HTTP/1.1\r\n" + host + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    for piece, begin in ((b"a" * 1000, b"1;"), (b"A: b\r\n" * 100, b"1\r\n \r\n0\r\n")):
        with socket.create_connection(("127.0.0.1", tight.port), timeout=60) as connection:
            connection.sendall(head + begin)
            sent = 0
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                while sent < 50_000_000:
                    connection.sendall(piece)
                    sent += len(piece)
            assert sent < 50_000_000
    assert tight.ask("GET", "/health")[0] == 200


@pytest.mark.slow
def test_more_connections_than_allowed_are_refused(tight):
    """And admitted again when others have gone."""
    held = [socket.create_connection(("127.0.0.1", tight.port), timeout=60) for _ in range(4)]
    for one in held:  # accepted: it answers
        one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost:%d\r\n\r\n" % tight.port)
        assert one.recv(100).startswith(b"HTTP/1.1 200 ")
    assert tight.raw(b"").startswith(b"HTTP/1.1 503 ")
    for one in held:
        one.close()
    wait_for(lambda: b"200 OK" in tight.raw(b"GET /health HTTP/1.0\r\nHost: localhost:%d\r\n\r\n" % tight.port))


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_connections_leave_no_descriptors(tight):
    folder = f"/proc/{tight.pid}/fd"
    before = len(os.listdir(folder))
    for _ in range(50):
        tight.raw(b"\x00\r\n\r\n")
    wait_for(lambda: len(os.listdir(folder)) <= before)
