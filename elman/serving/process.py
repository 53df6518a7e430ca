"""The process of a server: start, signals, orderly end.

SIGTERM or SIGINT: no new connections; accepted requests end, within drain_seconds, or get an error; then exit code 0.
A second one: exit code 1, at once. SIGHUP: models whose run has a newer best checkpoint are loaded again.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from elman.serving.app import create_app
from elman.serving.models import ModelPool
from elman.serving.predictor import ending
from elman.serving.protocol import limited_protocol
from elman.serving.settings import ServeConfig
from elman.serving.tokens import Tokens

LOG = logging.getLogger("elman.serving")
POLL = 0.02  # seconds between two looks at what still runs
LAST = 2.0  # seconds for errors to reach clients
SWITCH = float(
    os.environ.get("SWITCH", "0.0005")
)  # seconds after which the threads that compute take the interpreter from the event loop


class Process(uvicorn.Server):
    def __init__(self, pool: ModelPool, settings: ServeConfig, tokens: Tokens | None, listener: socket.socket):
        self.pool, self.settings, self.listener = pool, settings, listener
        self.port: int = listener.getsockname()[1]
        self.api = create_app(pool, settings, tokens, lambda: self.port)
        self.problem: BaseException | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        super().__init__(
            uvicorn.Config(
                self.api,
                loop="auto",  # uvloop where it is installed
                http=limited_protocol(settings),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=settings.behind_proxy,
                timeout_keep_alive=max(1, int(settings.idle_seconds)),
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
            )
        )

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Until a signal; raises what kept models from loading."""
        sys.setswitchinterval(SWITCH)
        super().run(sockets=sockets or [self.listener])
        if self.problem is not None:
            raise self.problem.__cause__ or self.problem

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._begin(self._preload)

    def _begin(self, work: Callable[[], Any]) -> None:
        task = asyncio.get_running_loop().create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _preload(self) -> None:
        try:
            await self.pool.preload()
            data = {"address": self.settings.address, "process": os.getpid(), "models": self.pool.ids}
            LOG.info("ready", extra={"data": data})
        except Exception as error:
            self.problem, self.should_exit = error, True

    async def _reload(self) -> None:
        try:
            LOG.info("reloaded", extra={"data": {"models": await self.pool.reload()}})
        except Exception as error:  # the models that are loaded go on
            LOG.error("cannot reload", exc_info=error)

    # Signals

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Without uvicorn's habit to raise the signal again at the end, which would be the exit code."""
        loop = asyncio.get_running_loop()
        stops = [number for name in ("SIGINT", "SIGTERM", "SIGBREAK") if (number := getattr(signal, name, None))]
        before = {number: signal.signal(number, self.handle_exit) for number in stops}
        if hangup := getattr(signal, "SIGHUP", None):
            before[hangup] = signal.signal(hangup, lambda *_: loop.call_soon_threadsafe(self._begin, self._reload))
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: Any) -> None:
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True

    # The end

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.api.state.ending = True
        LOG.info("ending", extra={"data": {"requests": len(self.api.state.running)}})
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        running = self.api.state.running
        await self._wait(lambda: not running, self.settings.drain_seconds)
        left = len(running)
        for exchange in list(running):
            exchange.stop(ending())
        await self._wait(lambda: not running and not self.server_state.connections, LAST)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        if self.force_exit:
            LOG.warning("ended at once", extra={"data": {"requests": left}})
            sys.stdout.flush()
            os._exit(1)
        await self.lifespan.shutdown()
        LOG.info("ended", extra={"data": {"unfinished": left}})

    async def _wait(self, done: Callable[[], bool], seconds: float) -> None:
        """Until it is done, time is up, or a second signal comes."""
        until = asyncio.get_running_loop().time() + seconds
        while not done() and not self.force_exit and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(POLL)
