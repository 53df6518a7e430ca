"""Starts a server: `elman serve RUN` and `elman.serve(model)`."""

import shlex
import socket
import ssl
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elman.errors import ConfigError, MissingExtra
from elman.serving.settings import ServeConfig
from elman.untrusted import read_bytes

if TYPE_CHECKING:
    from elman.pipeline import TrainedModel
    from elman.serving.tokens import Tokens

PACKAGES = ("fastapi", "uvicorn", "httptools", "prometheus_client")
LARGEST = 1_000_000  # bytes of a certificate or key


def serve(*models: "str | Path | TrainedModel", **settings: Any) -> None:
    """Answers HTTP requests for trained models or run folders, until the process is stopped: `elman.serve("runs/mine",
    port=8000)`. Settings are those of `elman serve`."""
    run_server(models, ServeConfig.make(settings))


def run_server(
    models: "tuple[str | Path | TrainedModel, ...]", settings: ServeConfig, say: Callable[[str], None] = print
) -> None:
    """Blocks until the server has ended in order; `say` gets address, token and a first command."""
    check_packages()
    from elman.serving.log import log_to_stderr
    from elman.serving.models import ModelPool
    from elman.serving.process import Process

    pool = ModelPool(models, settings)
    check_machine(settings)
    log_to_stderr(settings.log_level)
    with listen(settings) as listener:
        settings = settings.model_copy(update={"port": listener.getsockname()[1]})
        tokens, where = find_tokens(settings)

        def announce() -> None:
            for line in banner(settings.address, where, pool):
                say(line)
            sys.stdout.flush()  # whoever started it may wait for this

        if settings.ray is None:
            process = Process(pool, settings, tokens, listener)
            announce()
            process.run()
            return
    serve_on_cluster(models, settings, tokens, announce)


def check_packages() -> None:
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise MissingExtra("the server", missing[0], "serve")


def serve_on_cluster(
    models: "tuple[str | Path | TrainedModel, ...]",
    settings: ServeConfig,
    tokens: "Tokens | None",
    announce: Callable[[], None],
) -> None:
    from elman.serving.ray_serve import serve_on_ray

    places = [Path(one) for one in models if isinstance(one, str | Path)]
    if len(places) < len(models):
        raise ConfigError("replicas on a cluster load models from their run folders: give these, on a shared disk")
    serve_on_ray(places, settings, tokens, announce)


def check_machine(settings: ServeConfig) -> None:
    """An error for a device or a certificate that does not work, before anything is promised."""
    from elman.pipeline.devices import choose_device

    if settings.ray is None:  # whose nodes may be other machines
        choose_device(settings.device)
    if settings.tls_cert and settings.tls_key:
        for path in (settings.tls_cert, settings.tls_key):
            read_bytes(path, LARGEST, ConfigError, follow_links=True)
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(settings.tls_cert, settings.tls_key, password="")
        except (ssl.SSLError, ValueError) as error:
            why = "they do not belong together" if "KEY_VALUES" in str(error) else "one is no PEM file, or is encrypted"
            raise ConfigError(f"{settings.tls_cert} and {settings.tls_key} are no certificate and key: {why}") from None


def listen(settings: ServeConfig) -> socket.socket:
    """The socket, bound before anything is loaded or promised."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[
            0
        ]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(settings.connections)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {settings.host}, port {settings.port}: {error.strerror}; choose another --port or --host"
        ) from None
    listener.setblocking(False)
    return listener


def find_tokens(settings: ServeConfig) -> "tuple[Tokens | None, str]":
    """The tokens, and where a user finds one."""
    from elman.serving.tokens import Tokens, new_token, read_tokens, token_of, write_token

    if settings.no_token:
        return None, ""
    token, path = new_token(), settings.token_file
    if path is None:
        return Tokens([token_of(token)]), token
    if not path.exists():
        write_token(path, token)
    return read_tokens(path), f"$(grep -v '^#' {shlex.quote(str(path))} | head -n 1 | cut -d: -f2-)"


def banner(address: str, token: str, pool: Any) -> list[str]:
    """What a user needs to ask the server."""
    from elman.serving.api.help_page import curl
    from elman.serving.api.routing import routes_of

    first = pool.entries[0]
    command = curl(address, routes_of(first)[0], first.id, bool(token))
    lines = [f"Serving {', '.join(pool.ids)} on {address}"]
    if token:
        lines.append(f"TOKEN={token}")
    return [*lines, command]
