"""Settings and limits of the server, each with its default; the options of `elman serve` follow from them."""

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from elman.config import Config

Positive = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0)]
MB = 2**20


class ServeConfig(Config):
    """Where the server listens, who may ask, and the limits of requests. No limit can be switched off."""

    host: str = "127.0.0.1"
    """Address to listen on: an IP address or a host name. Any but a loopback address needs TLS or behind_proxy."""
    port: int = Field(8000, ge=0, lt=2**16)
    """Port to listen on; 0 takes a free one, which is printed."""
    allowed_hosts: list[str] = Field([])
    """More names that clients may give as Host, such as the public name behind a proxy: name, or name:port."""
    behind_proxy: bool = False
    """A reverse proxy on this machine or network terminates TLS; its X-Forwarded headers are trusted from loopback."""
    tls_cert: Path | None = None
    """PEM file with the certificate chain for TLS."""
    tls_key: Path | None = None
    """PEM file with the private key of tls_cert."""
    token_file: Path | None = None
    """File with one token per line, as token or name:token; written with a new token if it does not exist."""
    no_token: bool = False
    """Answer without a token; on loopback addresses only."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    threads: int = Field(0, ge=0)
    """CPU threads of a computation; 0 takes what the recipe of each model says."""
    weights: Literal["fp32", "int8"] = "fp32"
    """Weights that text is generated with on a CPU; int8 is smaller and faster."""
    memory_mb: Positive | None = None
    """MB that the weights of all loaded models may take; by default 80 % of the memory of the machine."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe entries of the log, which is JSON lines on stderr."""
    drain_seconds: Seconds = 30.0
    """Seconds that accepted requests have to end after SIGTERM or SIGINT."""

    ray: str | None = None
    """Address of a Ray cluster that serves, instead of this process; `local` starts one on this machine."""
    replicas: Positive = 1
    """Processes on the cluster that answer, each with models of its own."""
    max_replicas: Positive | None = None
    """Replicas that are added where more requests run and wait than one batch each, and removed again; by default
    none."""

    connections: Positive = 256
    """Open connections; more are closed at once."""
    headers: Positive = 64
    """Headers of a request."""
    header_bytes: Positive = 16 * 1024
    """Bytes of the request line and all headers together."""
    header_seconds: Seconds = 10.0
    """Seconds that request line and headers may take to arrive."""
    body_seconds: Seconds = 30.0
    """Seconds that a body may take to arrive."""
    idle_seconds: Seconds = 30.0
    """Seconds that a connection is kept without a request, and that a client may take to read what waits for it."""
    request_seconds: Seconds = 120.0
    """Seconds until a request must have been answered to its end."""
    body_bytes: Positive = 1 * MB
    """Bytes of a JSON body."""
    state_bytes: Positive = 16 * MB
    """Bytes of a body that restores the state of a session."""

    max_batch: Positive = 64
    """Rows that a model computes together."""
    event_seconds: float = Field(0.03, ge=0)
    """Tokens of a stream that come within this time after others are sent together; the first is sent at once."""
    max_queue: Positive = 256
    """Requests that may wait for a model; more are answered with 429 and Retry-After."""
    max_inputs: Positive = 64
    """Texts of a request."""
    prompt_bytes: Positive = 256 * 1024
    """Bytes of a text in UTF-8."""
    max_tokens: Positive = 4096
    """Tokens that a request may ask to generate."""
    max_choices: Positive = 16
    """Answers to a prompt (n), and hypotheses of a search (beam_size)."""
    stop_strings: Positive = 16
    """Stop strings of a request."""
    stop_length: Positive = 64
    """Characters of a stop string."""
    max_logprobs: Positive = 20
    """Likeliest tokens listed at each position."""

    session_count: Positive = 1_000_000
    """Sessions that are kept; beyond it new ones are refused until some expire or are deleted."""
    session_bytes: Positive = 512 * MB
    """Bytes of memory that sessions take; those not used for longest are on disk beyond it."""
    session_seconds: Seconds = 3600.0
    """Seconds that a session, or a state that was given away, holds without being used."""
    sessions: Path | None = None
    """Folder in which sessions survive the end of the server; without it they end with the server."""
    state_key: Path | None = None
    """File with the key that states are signed with, which replicas share; written if it does not exist. By default a
    file in the folder of sessions, or a new key at each start."""
    prefix_cache_bytes: Positive = 64 * MB
    """Bytes of states after the beginnings of prompts, kept so that a common beginning is read once."""
    chat_template: Path | None = None
    """YAML file that says how the messages of a chat become one text; by default a transcript."""

    @model_validator(mode="after")
    def _safe_to_reach(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            given, other = ("tls_cert", "tls_key") if self.tls_cert else ("tls_key", "tls_cert")
            raise ValueError(f"{given} is given without {other}; TLS needs both files")
        if not self.loopback and not (self.tls or self.behind_proxy):
            raise ValueError(
                f"host {self.host} can be reached from other machines, and tokens would pass the network as plain "
                "text: give tls_cert and tls_key, or behind_proxy if a proxy terminates TLS, or listen on 127.0.0.1"
            )
        if self.no_token and (self.behind_proxy or not self.loopback):
            raise ValueError(
                "no_token is for this machine only: leave it out, or listen on 127.0.0.1 without behind_proxy"
            )
        if self.no_token and self.token_file:
            raise ValueError("no_token and token_file contradict each other; leave one out")
        return self

    @model_validator(mode="after")
    def _replicas_on_a_cluster(self) -> Self:
        if self.ray is None and (self.replicas > 1 or self.max_replicas is not None):
            raise ValueError("replicas are processes on a Ray cluster: give its address with ray, or leave them out")
        if self.max_replicas is not None and self.max_replicas < self.replicas:
            raise ValueError(f"max_replicas is {self.max_replicas}, below replicas, which is {self.replicas}")
        return self

    @property
    def tls(self) -> bool:
        return self.tls_cert is not None

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def address(self) -> str:
        """Where clients on this machine reach it, once `port` is known."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    def memory_bytes(self) -> int:
        """Bytes that the weights of all loaded models may take."""
        from elman.limits import limits

        return self.memory_mb * MB if self.memory_mb else int(0.8 * limits().memory)
