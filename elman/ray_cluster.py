"""Connects this process to a Ray cluster."""

import os
import socket
from typing import Any

from elman.errors import ConfigError, MissingExtra

LOCAL = "local"
"""The address that starts a cluster on this machine, which ends with the process."""
ANSWER = 5.0  # seconds for a cluster to answer
OF_LOCAL = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # as on these systems, its ports are those of the loopback address only
    "RAY_USAGE_STATS_ENABLED": "0",  # which it would send to Ray's authors
}


def connect(address: str, purpose: str, cores: int = 0) -> Any:
    """The module `ray`, connected to the cluster at an address. `cores` is the size of a local one."""
    check_address(address)
    if address == LOCAL:
        os.environ.update(OF_LOCAL)
    try:
        import ray
    except ImportError:
        raise MissingExtra(purpose, "ray", "ray") from None
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address == LOCAL:
        options |= {"num_cpus": cores or None, "include_dashboard": False}
    try:
        ray.init(address=address, **options)
    except (ConnectionError, ValueError) as error:
        raise no_cluster(address, str(error)) from None
    return ray


def check_address(address: str) -> None:
    """An error where nothing listens: Ray itself would try for minutes."""
    host, colon, port = address.rpartition("/")[2].rpartition(":")
    if not colon or not port.isdigit():
        return  # `local`, `auto` or the name of a cluster
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER).close()
    except OSError as error:
        raise no_cluster(address, error.strerror or str(error)) from None


def no_cluster(address: str, reason: str) -> ConfigError:
    return ConfigError(f"ray {address}: no cluster answers there ({reason}); `local` starts one")


def accelerators(ray: Any) -> int:
    """GPUs of the cluster."""
    return int(ray.cluster_resources().get("GPU", 0))


def cores(ray: Any) -> int:
    """CPU cores of the cluster."""
    return int(ray.cluster_resources().get("CPU", 1))
