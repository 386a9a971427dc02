"""The operator's own metrics, for whoever watches the operator."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app, start_http_server

from octavo_operator.shell.scaling_page import Published, ScalingCollector, with_recommendations


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

    def serve(self, address: str, published: Published) -> None:
        """The page of metrics, and the recommendations beside it."""
        host, _, port = address.rpartition(":")
        self.registry.register(ScalingCollector(published))
        server, _ = start_http_server(int(port), addr=host, registry=self.registry)
        server.set_app(with_recommendations(make_wsgi_app(self.registry), published))
