"""Who may ask: token, Host, Origin, content type, sizes; every route, with every method."""

import asyncio
import itertools
import json

import httpx
import pytest
from served import ADDRESS, BEARER, OTHER, SECRET, TOKENS, error_of

import elman
from elman.config import ConfigError
from elman.serving import application
from elman.serving.security import PUBLIC, LimitedBody
from elman.serving.settings import ServeConfig
from elman.serving.tokens import Tokens, read_tokens, token_of, write_token

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW"]
NOT_SHOWN = [
    {},
    {"Authorization": "Bearer"},
    {"Authorization": f"Bearer {SECRET[:-1]}"},
    {"Authorization": f"Bearer {SECRET}x"},
    {"Authorization": f"Basic {SECRET}"},
    {"Authorization": SECRET},
    {"Authorization": "Bearer café"},
    {"X-Api-Key": SECRET},
    {"Cookie": f"token={SECRET}"},
]


def paths_of(app):
    """Of every route, those that FastAPI adds included, with something in place of a name."""
    routes = [*app.routes]
    for route in routes:
        routes += getattr(getattr(route, "original_router", None), "routes", [])
    found = [route.path for route in routes if not hasattr(route, "original_router")]
    return sorted(path.replace("{id:path}", "classify").replace("{id}", "some") for path in found)


@pytest.mark.slow
def test_every_route_needs_the_token_but_those_listed_as_public(client):
    """Catches a new route that answers without one, whatever the method, and a token in the wrong place."""
    ask = client("classify")
    paths = paths_of(ask.app)
    assert {"/", "/health", "/metrics", "/openapi.json", "/v1/models", "/v1/models/classify", "/tokenize"} <= {*paths}
    assert {"/classify", "/tag", "/translate", "/fill", "/regress"} <= {*paths}
    paths += ["/none", "/health/", "/%68ealth/x", "/health%2f..%2fmetrics", "/docs", "/redoc"]
    for path, method, headers in itertools.product(paths, METHODS, NOT_SHOWN):
        encoded = {name: value.encode() for name, value in headers.items()}
        found = ask.ask(method, path, headers=encoded)
        if path in PUBLIC:
            assert found.status_code in (200, 405, 503), (method, path)
        else:
            assert found.status_code == 401, (method, path, headers)
            assert method == "HEAD" or error_of(found)["code"] == "invalid_api_key"
            assert found.headers["www-authenticate"] == "Bearer"
    assert ask.get(f"/v1/models?token={SECRET}", headers={}).status_code == 401


@pytest.mark.slow
def test_no_route_crashes_whatever_the_method(client):
    ask = client("classify")
    for path, method in itertools.product(paths_of(ask.app), METHODS):
        found = ask.ask(method, path)
        assert found.status_code < 500 or path == "/health", (method, path, found.text)
        assert "access-control-allow-origin" not in found.headers
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["referrer-policy"] == "no-referrer"
        assert found.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.slow
def test_every_token_works_and_says_whose_it_is(client):
    ask = client("classify")
    for token in (SECRET, OTHER):
        assert ask.get("/v1/models", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        assert ask.get("/v1/models", headers={"authorization": f"bearer {token}"}).status_code == 200
    assert (TOKENS.owner(SECRET.encode()), TOKENS.owner(OTHER.encode()), TOKENS.owner(b"")) == ("ann", "bob", None)
    assert Tokens([]).owner(b"") is None
    twice = [("Authorization", f"Bearer {SECRET}")] * 2
    assert ask.get("/v1/models", headers=twice).status_code == 401


@pytest.mark.slow
def test_without_tokens_all_of_this_machine_may_ask(client):
    assert client("classify", tokens=None).get("/v1/models", headers={}).status_code == 200


FOREIGN_HOSTS = [
    "", "evil.example", "localhost.evil.example:8000", "127.0.0.1.evil.example:8000", "localhost.:8000", "127.0.0.1",
    "127.0.0.1:80", "127.0.0.1:08000", "127.0.0.1:8000@evil.example", "evil.example@127.0.0.1:8000",
    "a/?x=127.0.0.1:8000", "0.0.0.0:8000", "127.0.0.2:8000", "127.1:8000", "2130706433:8000",
    "[::ffff:127.0.0.1]:8000", "::1:8000",
    "localhost:8000, evil.example", "localhost:8000 evil", "[::1]", "local\thost:8000",
]  # fmt: skip


@pytest.mark.slow
def test_only_our_own_host_is_answered(client):
    ask = client("classify")
    for host in ("127.0.0.1:8000", "localhost:8000", "LocalHost:8000", "[::1]:8000"):
        assert ask.get("/v1/models", headers={**BEARER, "Host": host}).status_code == 200, host
    for host in FOREIGN_HOSTS:
        for path in ("/v1/models", "/health", "/"):
            assert ask.get(path, headers={**BEARER, "Host": host}).status_code == 421, host
    twice = [*BEARER.items(), ("Host", "127.0.0.1:8000"), ("Host", "evil.example")]
    assert ask.get("/v1/models", headers=twice).status_code == 421


@pytest.mark.slow
def test_names_of_a_proxy_are_added_one_by_one(client):
    ask = client("classify", allowed_hosts=["models.example"], behind_proxy=True)
    for origin in ({}, {"Origin": "https://models.example"}):
        assert ask.get("/v1/models", headers={**BEARER, "Host": "models.example", **origin}).status_code == 200
    for host in ("evil.example", "models.example.evil", "x.models.example"):
        assert ask.get("/v1/models", headers={**BEARER, "Host": host}).status_code == 421


@pytest.mark.slow
def test_pages_of_other_origins_are_refused(client):
    ask = client("classify", tokens=None)
    for origin in (ADDRESS, "http://localhost:8000"):
        assert ask.post("/classify", {"input": "x"}, headers={"Origin": origin}).status_code == 200
    others = ["null", "", "https://127.0.0.1:8000", "http://127.0.0.1", "http://127.0.0.1:8001", "http://evil.example"]
    others += ["http://127.0.0.1:8000.evil.example", "http://evil.example/http://127.0.0.1:8000", f"{ADDRESS}/"]
    for origin in others:
        for method, path in (("POST", "/classify"), ("GET", "/v1/models"), ("GET", "/health")):
            assert ask.ask(method, path, headers={"Origin": origin}, json={"input": "x"}).status_code == 403, origin
    for site, status in (("none", 200), ("same-origin", 200), ("same-site", 403), ("cross-site", 403), ("", 403)):
        assert ask.post("/classify", {"input": "x"}, headers={"Sec-Fetch-Site": site}).status_code == status


@pytest.mark.slow
def test_bodies_that_a_form_could_send_are_refused(client):
    ask = client("classify", tokens=None)
    body = json.dumps({"input": "x"})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "*/*",
                 "application/jsonx", "application/octet-stream", "text/plain; application/json"):  # fmt: skip
        found = ask.ask("POST", "/classify", content=body, headers={"Content-Type": kind})
        assert found.status_code == 415, kind
    assert ask.ask("POST", "/classify", content=body, headers={}).status_code == 415
    for kind in ("application/json", "Application/JSON", "application/json; charset=utf-8"):
        assert ask.ask("POST", "/classify", content=body, headers={"Content-Type": kind}).status_code == 200


@pytest.mark.slow
def test_large_bodies_and_headers_are_refused(client):
    """With and without a length that says so."""
    ask = client("classify", body_bytes=1000)

    async def pieces(count):
        for _ in range(count):
            yield b" " * 100

    kind = {**BEARER, "Content-Type": "application/json"}
    assert ask.ask("POST", "/classify", content=b" " * 1001, headers=kind).status_code == 413
    assert ask.ask("POST", "/classify", content=pieces(11), headers=kind).status_code == 413
    assert ask.ask("POST", "/classify", content=pieces(10), headers=kind).status_code == 400  # of no JSON
    assert ask.get("/v1/models", headers={**BEARER, **{f"X-{n}": "" for n in range(70)}}).status_code == 431
    assert ask.get("/v1/models", headers={**BEARER, "X": "x" * 17_000}).status_code == 431
    assert ask.get("/" + "x" * 17_000).status_code == 431


def test_a_body_that_does_not_come_ends_with_an_error():
    async def read():
        async def never():
            await asyncio.sleep(60)

        body = LimitedBody(never, 10, 0.01)
        with pytest.raises(Exception, match="did not arrive") as found:
            await body()
        return found.value.status_code

    assert asyncio.run(read()) == 408


@pytest.mark.slow
def test_request_ids_are_echoed_where_they_are_safe(client):
    ask = client("classify")
    assert ask.get("/health", headers={"X-Request-Id": "abc-1.2_3"}).headers["x-request-id"] == "abc-1.2_3"
    for given in ("", "a b", "a" * 65, "<b>", "a;b", "é"):
        made = ask.get("/health", headers={"X-Request-Id": given.encode()}).headers["x-request-id"]
        assert len(made) == 32
        assert made != given


# Settings


def test_what_others_can_reach_is_protected():
    for given in ({"host": "0.0.0.0"}, {"host": "192.168.1.2"}, {"host": "::"}, {"host": "example.org"}):
        with pytest.raises(ConfigError, match="tls_cert and tls_key, or behind_proxy"):
            ServeConfig.make(given)
        assert ServeConfig.make({**given, "behind_proxy": True}).host == given["host"]
        with pytest.raises(ConfigError, match="no_token is for this machine only"):
            ServeConfig.make({**given, "behind_proxy": True, "no_token": True})
    for host in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
        assert ServeConfig.make({"host": host, "no_token": True}).loopback
    with pytest.raises(ConfigError, match="tls_cert is given without tls_key"):
        ServeConfig.make({"tls_cert": "a.pem"})
    with pytest.raises(ConfigError, match="contradict"):
        ServeConfig.make({"no_token": True, "token_file": "t"})


def test_no_limit_can_be_switched_off():
    """Catches 0 for unlimited."""
    free = {"host", "port", "allowed_hosts", "behind_proxy", "tls_cert", "tls_key", "token_file", "no_token", "device"}
    free |= {"threads", "weights", "memory_mb", "log_level", "sessions", "state_key", "chat_template"}
    free |= {"ray", "replicas", "max_replicas"}
    limits = ServeConfig.model_fields.keys() - free
    assert {"body_bytes", "request_seconds", "max_queue", "connections"} <= limits
    for name in limits:
        for value in (0, -1, None, float("inf")):
            with pytest.raises(ConfigError, match=name):
                ServeConfig.make({name: value})


# Token files


def test_a_token_file_is_its_owners_alone(tmp_path):
    path = tmp_path / "new" / "tokens"
    write_token(path, SECRET)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_tokens(path).owner(SECRET.encode())
    with pytest.raises(ConfigError.__base__, match="cannot write the token"):
        write_token(path, OTHER)
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(ConfigError.__base__, match="chmod 600"):
            read_tokens(path)


def test_several_tokens_have_names(tmp_path):
    path = tmp_path / "tokens"
    path.touch(0o600)
    path.write_text(f"# ours\n\nann:{SECRET}\n{OTHER}\n")
    found = read_tokens(path)
    assert found.owner(SECRET.encode()) == "ann"
    assert found.owner(OTHER.encode()) == token_of(OTHER).owner
    assert OTHER not in token_of(OTHER).owner
    assert found.owner(f"ann:{SECRET}".encode()) is None
    for wrong in ("short", "ann:short", "ann:" + "x" * 15, "with a space in it all", "é" * 20):
        path.write_text(f"{SECRET}\n{wrong}\n")
        with pytest.raises(ConfigError, match="line 2: a token has 16 or more"):
            read_tokens(path)
    path.write_text("# nothing\n")
    with pytest.raises(ConfigError.__base__, match="has no token"):
        read_tokens(path)


def test_tokens_are_not_read_through_links(tmp_path):
    (tmp_path / "real").touch(0o600)
    (tmp_path / "real").write_text(SECRET)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigError.__base__, match="cannot read the tokens"):
        read_tokens(tmp_path / "link")


def test_a_server_inside_a_program_says_who_may_ask(runs, tmp_path):
    """Catches one that anybody may ask since nobody thought of it, and one that never gets ready."""
    with pytest.raises(ConfigError, match="who may ask"):
        application(runs["classify"])
    path = tmp_path / "tokens"
    path.write_text(f"ann:{SECRET}\n")
    path.chmod(0o600)

    async def statuses(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as http:
            found = [await http.get("/health"), await http.post("/classify", json={"input": "x"})]
            found.append(await http.post("/classify", json={"input": "x"}, headers=BEARER))
            return [one.status_code for one in found]

    assert asyncio.run(statuses(application(runs["classify"], token_file=path))) == [200, 401, 200]
    assert asyncio.run(statuses(application(elman.load(runs["classify"]), no_token=True))) == [200, 200, 200]


def test_the_page_shows_models_and_commands_to_those_who_may_ask(client):
    ask = client("classify", "language-model")
    page = ask.get("/").text
    for shown in ("<code>classify</code> (classify): /classify", "/v1/completions -H", "/classify -H", "/openapi.json"):
        assert shown in page
    assert "$TOKEN" in page
    nobody = ask.get("/", headers={}).text
    assert "classify" not in nobody
    assert "/v1/models" in nobody
