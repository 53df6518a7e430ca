"""Starts a server: `elman serve RUN` and `elman.serve(model)`."""

import shlex
import socket
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elman.errors import ConfigError, MissingExtra
from elman.serving.settings import ServeConfig

if TYPE_CHECKING:
    from elman.pipeline import TrainedModel
    from elman.serving.tokens import Tokens

PACKAGES = ("fastapi", "uvicorn", "httptools", "prometheus_client")


def serve(*models: "str | Path | TrainedModel", **settings: Any) -> None:
    """Answers HTTP requests for trained models or run folders, until the process is stopped: `elman.serve("runs/mine",
    port=8000)`. Settings are those of `elman serve`."""
    run_server(models, ServeConfig.make(settings))


def run_server(
    models: "tuple[str | Path | TrainedModel, ...]", settings: ServeConfig, say: Callable[[str], None] = print
) -> None:
    """Blocks until the server has ended in order; `say` gets address, token and a first command."""
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise MissingExtra("the server", missing[0], "serve")
    from elman.serving.log import log_to_stderr
    from elman.serving.models import ModelPool
    from elman.serving.process import Process

    pool = ModelPool(models, settings)
    log_to_stderr(settings.log_level)
    with listen(settings) as listener:
        settings = settings.model_copy(update={"port": listener.getsockname()[1]})
        tokens, where = find_tokens(settings)

        def announce() -> None:
            for line in banner(settings.address, where, pool):
                say(line)
            sys.stdout.flush()  # whoever started it may wait for this

        if settings.ray is None:
            announce()
            Process(pool, settings, tokens, listener).run()
            return
    serve_on_cluster(models, settings, tokens, announce)


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
