"""Figures for Prometheus, under the names that vLLM gave them, with the prefix `elman_`."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

PREFIX = "elman"
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
MILLISECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
Loads = Callable[[], Iterable[tuple[str, int, int]]]


class LoadCollector:
    """Gauges of what runs and waits now, asked for when Prometheus asks."""

    def __init__(self, loads: Loads):
        self._loads = loads

    def collect(self) -> Iterator[Any]:
        running = GaugeMetricFamily(f"{PREFIX}_num_requests_running", "Requests being computed", labels=["model_name"])
        waiting = GaugeMetricFamily(f"{PREFIX}_num_requests_waiting", "Requests in the queue", labels=["model_name"])
        for name, run, wait in self._loads():
            running.add_metric([name], run)
            waiting.add_metric([name], wait)
        yield from (running, waiting)


class Metrics:
    """All figures of one server. `loads` gives (model, requests running, requests waiting) of each loaded model."""

    def __init__(self, loads: Loads = lambda: ()):
        self.registry = CollectorRegistry()
        self.replica = ""
        """Its name, a label of all figures, where several replicas answer at one address."""
        self.registry.register(LoadCollector(loads))

        def count(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{PREFIX}_{name}", text, labels or ("model_name",), registry=self.registry)

        def times(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            full = f"{PREFIX}_{name}_seconds"
            return Histogram(full, text, ("model_name",), buckets=buckets, registry=self.registry)

        self.requests = count("http_requests_total", "Requests answered", "route", "method", "status")
        self.prompt_tokens = count("prompt_tokens_total", "Tokens read")
        self.generation_tokens = count("generation_tokens_total", "Tokens generated")
        self.success = count("request_success_total", "Requests ended", "model_name", "finished_reason")
        self.first_token = times("time_to_first_token", "Until the first token was there", SECONDS)
        self.inter_token = times("inter_token_latency", "Between two tokens", MILLISECONDS)
        self.latency = times("e2e_request_latency", "From arrival to the end", SECONDS)
        self.queue = times("request_queue_time", "From arrival to the start of computing", SECONDS)

    def answered(self, route: str, method: str, status: int) -> None:
        known = method if method in METHODS else "other"
        self.requests.labels(route, known, str(status)).inc()

    def text(self) -> bytes:
        return generate_latest(self)  # type: ignore[arg-type]  # which only collects

    def collect(self) -> Iterator[Any]:
        label = {"replica": self.replica} if self.replica else {}
        for family in self.registry.collect():
            family.samples = [sample._replace(labels={**sample.labels, **label}) for sample in family.samples]
            yield family
