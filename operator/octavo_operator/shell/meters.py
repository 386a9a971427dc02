"""The operator's own metrics, for whoever watches the operator."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server


class Meters:
    """What the operator counts about itself."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.passes = Counter(
            "octavo_operator_passes_total", "Reconcile passes.", ["result"], registry=self.registry
        )
        self.pass_seconds = Histogram(
            "octavo_operator_pass_seconds", "Duration of a reconcile pass.", registry=self.registry
        )
        self.writes = Counter(
            "octavo_operator_writes_total", "Writes to the API server.", ["kind"], registry=self.registry
        )

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read when it is asked for."""
        Gauge(name, text, registry=self.registry).set_function(read)

    def serve(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        start_http_server(int(port), addr=host, registry=self.registry)
