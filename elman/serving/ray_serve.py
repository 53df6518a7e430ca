"""`elman serve --ray ADDRESS`: the server as an application of Ray Serve.

client ─▶ proxy of Ray on each node ─▶ the replica with the fewest requests ─▶ keeper of the sessions, on this node

This process starts it, waits for a signal and ends it. Accepted requests end within drain_seconds; what a lost replica
was computing gets an error 500 from the proxy, and clients try again.
"""

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from elman.comparison.user_modules import read_already
from elman.errors import ConfigError, RunError
from elman.processes import stop_signals
from elman.ray_cluster import LOCAL, accelerators, connect, cores
from elman.serving.settings import ServeConfig
from elman.serving.shared_sessions import SessionKeeper
from elman.serving.signed_state import read_key
from elman.serving.tokens import Tokens

LOG = logging.getLogger("elman.serving")
NAME = "elman"
KEEPER = "elman sessions"
CONTROLLER = "SERVE_CONTROLLER_ACTOR"
LOOK_BACK = 5.0  # seconds of which the mean load decides whether replicas are added
SPARE = 64  # requests beyond a full queue, so that it is the replica that refuses them, with 429


def serve_on_ray(
    models: Sequence[Path], settings: ServeConfig, tokens: Tokens | None, announce: Callable[[], None]
) -> None:
    """Blocks until a signal, and until all has ended in order. `announce` is called when requests are answered."""
    models, settings = [one.absolute() for one in models], anywhere(settings)
    ray = connect(str(settings.ray), "a server on a cluster of Ray")
    from ray import serve

    logging.getLogger("ray.serve").setLevel(logging.ERROR)

    try:
        check_cluster(ray, serve, settings)
        keeper = start_keeper(ray, settings)
        try:
            application = application_of(ray, models, settings, tokens, keeper)
            with stop_signals(signal.default_int_handler):
                deploy(serve, application(0))
            run_until_stopped(serve, application, announce)
        finally:
            serve.shutdown()
            with suppress(ray.exceptions.RayError):
                ray.get(keeper.close.remote(), timeout=settings.drain_seconds)
            ray.kill(keeper)
    finally:
        ray.shutdown()


def run_until_stopped(serve: Any, application: Callable[[int], Any], announce: Callable[[], None]) -> None:
    """`application(n)` after n requests to load newer checkpoints."""
    with signals() as wait:
        announce()
        LOG.info("ready")
        times = 0
        while wait():
            times += 1
            deploy(serve, application(times))
            LOG.info("reloaded")
        LOG.info("ending")
        serve.delete(NAME)
    LOG.info("ended")


def deploy(serve: Any, application: Any) -> None:
    """Returns when all replicas answer."""
    try:
        serve.run(application, name=NAME, route_prefix="/")
    except RuntimeError as error:
        reasons = [line.strip() for line in str(error).splitlines() if "Error" in line]
        raise RunError(f"the replicas did not start: {reasons[-1] if reasons else error}") from error


def anywhere(settings: ServeConfig) -> ServeConfig:
    """With paths that lead to the same files from other working directories."""
    return settings.model_copy(update={name: one.absolute() for name, one in settings if isinstance(one, Path)})


@contextmanager
def signals() -> Iterator[Callable[[], bool]]:
    """A function that waits for a signal, and says whether it was SIGHUP."""
    came, stop = threading.Event(), threading.Event()

    def end(number: int, frame: Any) -> None:
        if stop.is_set():
            sys.exit(1)
        stop.set()
        came.set()

    def wait() -> bool:
        came.wait()
        came.clear()
        return not stop.is_set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    if hangup := getattr(signal, "SIGHUP", None):
        before[hangup] = signal.signal(hangup, lambda *_: came.set())
    try:
        yield wait
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def check_cluster(ray: Any, serve: Any, settings: ServeConfig) -> None:
    """Starts the proxies; an error for a cluster that cannot serve this."""
    found, needed = cores(ray), settings.replicas * max(settings.threads, 1)
    if settings.ray == LOCAL and needed > found:
        raise ConfigError(f"{settings.replicas} replicas need {needed} cores, but there are {found}: fewer replicas")
    try:
        ray.get_actor(CONTROLLER, namespace="serve")
    except ValueError:
        pass
    else:
        if others := serve.status().applications:
            raise ConfigError(
                f"the cluster serves {', '.join(map(str, others))} already, and has one address for all; end it first, "
                "with `serve shutdown` if nothing else does"
            )
        serve.shutdown()  # else its address would be kept
    options = {"host": settings.host, "port": settings.port, "keep_alive_timeout_s": max(1, int(settings.idle_seconds))}
    if settings.tls:
        options |= {"ssl_certfile": str(settings.tls_cert), "ssl_keyfile": str(settings.tls_key)}
    serve.start(http_options=options, logging_config={"enable_access_log": False, "log_level": "WARNING"})


def start_keeper(ray: Any, settings: ServeConfig) -> Any:
    """On this node, where the folder of sessions is. Started again if it is lost."""
    from elman.serving.replica import alive

    place = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), False
    )
    options = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": 1000, "scheduling_strategy": place}
    return ray.remote(SessionKeeper).options(name=KEEPER, **options).remote(settings, alive)


def application_of(
    ray: Any, models: Sequence[Path], settings: ServeConfig, tokens: Tokens | None, keeper: Any
) -> Callable[[int], Any]:
    from elman.serving.replica import Replica, Share

    gpu = settings.device == "cuda" or (settings.device == "auto" and accelerators(ray) > 0)
    options: dict[str, Any] = {
        "ray_actor_options": {"num_cpus": max(settings.threads, 1), "num_gpus": int(gpu)},
        "max_ongoing_requests": settings.max_batch + settings.max_queue + SPARE,
        "graceful_shutdown_timeout_s": settings.drain_seconds,
        "graceful_shutdown_wait_loop_s": 0.1,
        "health_check_period_s": 5,
    }
    if settings.max_replicas is None:
        options["num_replicas"] = settings.replicas
    else:
        options["autoscaling_config"] = {
            "min_replicas": settings.replicas,
            "max_replicas": settings.max_replicas,
            "target_ongoing_requests": settings.max_batch,
            "look_back_period_s": LOOK_BACK,
            "upscale_delay_s": LOOK_BACK,
        }
    key = read_key(settings.state_key, settings.sessions)
    share = Share(tuple(models), settings, tokens, key, keeper, tuple(read_already()))
    return lambda times: Replica.options(user_config=times, **options).bind(share)
