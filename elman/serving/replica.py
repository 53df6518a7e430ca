"""A replica of the server in a process of a Ray cluster: the same application, behind the HTTP proxy of Ray Serve."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import get_actor, serve

from elman.comparison.user_modules import read_modules
from elman.serving.app import create_app
from elman.serving.log import log_to_stderr
from elman.serving.models import ModelPool
from elman.serving.settings import ServeConfig
from elman.serving.shared_sessions import SharedSessions
from elman.serving.tokens import Tokens

NAMESPACE = "serve"  # of the actors that are replicas
REQUEST_ID = b"x-request-id"


@dataclass(frozen=True)
class Share:
    """What all replicas have in common."""

    models: tuple[Path, ...]
    settings: ServeConfig
    tokens: Tokens | None
    key: bytes
    """States are signed with it."""
    keeper: Any
    """The actor that keeps the sessions."""
    modules: tuple[Path, ...]
    """Files of a user's own layers and tasks."""


def alive(replica: str) -> bool:
    """Whether an actor of that name is there."""
    try:
        get_actor(replica, NAMESPACE)
    except ValueError:
        return False
    return True


@serve.deployment
@serve.ingress()
class Replica:
    async def __init__(self, share: Share):
        read_modules(share.modules)
        log_to_stderr(share.settings.log_level)
        self.pool, settings = ModelPool(share.models, share.settings), share.settings
        name = serve.get_replica_context().replica_id.to_full_id_str()
        sessions = SharedSessions(share.keeper, name, durable=settings.sessions is not None)
        self.api = create_app(self.pool, settings, share.tokens, None, sessions, share.key)
        self.api.state.metrics.replica = name
        await self.pool.preload()  # requests come once this has ended

    def __serve_build_asgi_app__(self) -> Any:
        return BehindProxy(self.api)

    async def reconfigure(self, times: int) -> None:
        """Loads newer checkpoints."""
        if times:
            await self.pool.reload()

    async def check_health(self) -> None:
        """A replica whose event loop does not get here in time is replaced."""


class BehindProxy:
    """The application, whose answers get the id of the request from the proxy."""

    def __init__(self, api: Any):
        self.api = api

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_on(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = [(name, value) for name, value in message["headers"] if name != REQUEST_ID]
                message = {**message, "headers": headers}
            await send(message)

        await self.api(scope, receive, send_on)
