"""A page of somebody else in a real browser, while a server without a token runs on the same machine: it reads and
changes nothing, not even after DNS rebinding has made the server part of its own site."""

import http.server
import json
import threading
from contextlib import contextmanager

import pytest
from browsing import browser

NAME = "rebound.example"  # resolves to this machine, as after DNS rebinding
# What the page tries: every answer that it can read, by a name of the attempt.
SCRIPT = """async ([hosts, id]) => {
  const read = {};
  const note = async (name, answer) => {
    const text = await answer.text();
    if (answer.type !== 'opaque' && answer.ok) read[name] = text.slice(0, 200);
  };
  const body = JSON.stringify({prompt: 'x', max_tokens: 1, session: id});
  const types = ['application/json', 'text/plain', 'application/x-www-form-urlencoded', undefined];
  const paths = ['/', '/health', '/v1/models', '/metrics', '/openapi.json', `/v1/sessions/${id}`,
                 `/v1/sessions/${id}/state`, `/v1/responses/${id}`];
  const tries = [];
  for (const host of hosts) {
    for (const mode of ['cors', 'no-cors']) {
      for (const path of paths) tries.push([host + path, {mode}]);
      for (const type of types) {
        const headers = type ? {'Content-Type': type} : {};
        for (const path of ['/v1/completions', '/v1/sessions', '/v1/responses'])
          tries.push([host + path, {mode, method: 'POST', headers, body}]);
        tries.push([`${host}/v1/sessions/${id}/fork`, {mode, method: 'POST', headers}]);
      }
    }
    for (const method of ['DELETE', 'PUT', 'PATCH'])
      tries.push([`${host}/v1/sessions/${id}`, {method}]);
  }
  for (const [url, options] of tries)
    try { await note(`${options.method || 'GET'} ${options.mode || ''} ${url}`, await fetch(url, options)); } catch {}
  for (const host of hosts) {
    navigator.sendBeacon(`${host}/v1/completions`, new Blob([body], {type: 'text/plain'}));
    await new Promise(done => {
      const frame = document.createElement('iframe');
      frame.name = 'frame'; frame.onload = done; document.body.append(frame);
      const form = document.createElement('form');
      Object.assign(form, {action: `${host}/v1/sessions/${id}/fork`, method: 'POST', target: 'frame'});
      document.body.append(form); form.submit(); setTimeout(done, 2000);
    });
    for (const tag of ['script', 'img', 'link', 'iframe']) {
      const made = document.createElement(tag);
      made[tag === 'link' ? 'href' : 'src'] = `${host}/v1/models`; made.rel = 'stylesheet'; document.body.append(made);
    }
    await new Promise(done => {
      const socket = new WebSocket(host.replace('http', 'ws') + '/v1/models');
      socket.onopen = () => { read[`socket ${host}`] = 'open'; done(); };
      socket.onerror = done; setTimeout(done, 2000);
    });
    await new Promise(done => {
      const events = new EventSource(`${host}/v1/models`);
      events.onopen = () => { read[`events ${host}`] = 'open'; done(); };
      events.onerror = () => { events.close(); done(); }; setTimeout(done, 2000);
    });
  }
  for (const frame of document.querySelectorAll('iframe'))
    try {
      const text = frame.contentDocument.body.innerText;
      if (text.includes('model')) read.frame = text;
    } catch {}
  return read;
}"""


@contextmanager
def hostile_site():
    """A web server of the attacker's; its port."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>prizes</title><body>")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield site.server_port
        site.shutdown()


def state_of(server, id):
    counted = server.ask("GET", "/metrics")[1].decode().splitlines()
    tokens = [line for line in counted if line.startswith(("elman_prompt_tokens", "elman_generation_tokens"))]
    return server.ask("GET", f"/v1/sessions/{id}/state")[1], tokens


@pytest.mark.slow
@pytest.mark.parametrize("rebound", [False, True], ids=["another site", "a rebound name"])
def test_a_hostile_page_reads_and_changes_nothing(start, runs, rebound):
    """Catches a server that relies on its address, or on the browser, to be out of reach."""
    # as browsers were before they asked for permission to reach the own machine
    features = "LocalNetworkAccessChecks,PrivateNetworkAccessSendPreflights,BlockInsecurePrivateNetworkRequests"
    words = ["--host-resolver-rules=MAP *.example 127.0.0.1", f"--disable-features={features}"]
    with browser(*words) as found, hostile_site() as port:
        server = start(runs["language-model"], "--port", 0, "--no-token").ready()
        id = json.loads(server.ask("POST", "/v1/sessions", {"prompt": "the cat"})[1])["id"]
        before = state_of(server, id)
        own, name = server.port, f"http://{NAME}:{server.port}"
        page = found.new_page()
        if rebound:  # the first answer comes from the attacker, all others from where the name leads now
            page.route(
                f"{name}/prizes", lambda one: one.fulfill(body="<!doctype html><body>", content_type="text/html")
            )
            page.goto(f"{name}/prizes")
        else:
            page.goto(f"http://evil.example:{port}/")
        hosts = [name, f"http://127.0.0.1:{own}", f"http://localhost:{own}", f"http://0.0.0.0:{own}"]
        asked = len(server.log)
        read = page.evaluate(SCRIPT, [hosts, id])
        assert read == {}
        assert state_of(server, id) == before
    entries = [entry for entry in server.log[asked:] if entry["event"] == "request"]
    foreign = [entry for entry in entries if not (entry["path"] == "/metrics" or entry["path"].endswith("/state"))]
    assert len(foreign) > 50  # the attempts have reached the server
    assert {entry["status"] for entry in foreign} <= {403, 415, 421}
    assert server.stop() == 0
