"""The operator's configuration: environment variables, read once at start."""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from octavo.errors import InvalidSpec

MAX_SECONDS: Final = 30 * 86400
MIN_POD_SECONDS: Final = 10
"""Between two pods that look at the same; a sensible number is far greater."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an installation decides."""

    engine_image: str
    """For revisions whose spec names none."""
    hub_endpoint: str
    """Empty: the public hub."""
    watch_namespace: str
    """Empty: all of them."""
    health_address: str
    metrics_address: str
    log_format: str
    lease_namespace: str
    """Where the Lease of the operator that acts lies. Empty: none is held."""
    identity: str
    """What the Lease calls this process; a container that starts again in its pod has the same."""
    upstream_interval_seconds: float
    """Between two questions what a branch or tag stands for by now; 0: it is never asked."""
    private_interval_seconds: float
    """Between two resolver pods that look whether a followed private branch has moved; 0: none is sent."""


def read_settings(environment: Mapping[str, str]) -> Settings:
    image = environment.get("OCTAVO_ENGINE_IMAGE", "")
    if not image:
        raise InvalidSpec("OCTAVO_ENGINE_IMAGE: must name the engine image for new revisions, got nothing")
    log_format = environment.get("OCTAVO_LOG_FORMAT", "") or "json"
    if log_format not in ("json", "text"):
        raise InvalidSpec(f"OCTAVO_LOG_FORMAT: must be json or text, got {log_format!r}")
    return Settings(
        engine_image=image,
        hub_endpoint=environment.get("OCTAVO_HUB_ENDPOINT", "").rstrip("/"),
        watch_namespace=environment.get("OCTAVO_WATCH_NAMESPACE", ""),
        health_address=environment.get("OCTAVO_HEALTH_ADDRESS", "0.0.0.0:8080"),
        metrics_address=environment.get("OCTAVO_METRICS_ADDRESS", "0.0.0.0:8081"),
        log_format=log_format,
        lease_namespace=environment.get("OCTAVO_LEASE_NAMESPACE", ""),
        identity=environment.get("OCTAVO_IDENTITY", "") or socket.gethostname(),
        upstream_interval_seconds=read_seconds(environment, "OCTAVO_UPSTREAM_INTERVAL_SECONDS", 300.0),
        private_interval_seconds=read_pod_seconds(environment, "OCTAVO_PRIVATE_INTERVAL_SECONDS", 1800.0),
    )


def read_seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "")
    try:
        seconds = float(text) if text else default
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= MAX_SECONDS:
        raise InvalidSpec(f"{name}: must be a number of seconds from 0 to {MAX_SECONDS}, got {text!r}")
    return seconds


def read_pod_seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    seconds = read_seconds(environment, name, default)
    if 0 < seconds < MIN_POD_SECONDS:
        raise InvalidSpec(
            f"{name}: must be at least {MIN_POD_SECONDS}, since each time a pod is started, or 0 for never, "
            f"got {seconds:g}"
        )
    return seconds
