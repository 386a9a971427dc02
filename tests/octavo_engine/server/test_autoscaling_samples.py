"""The samples for Prometheus and KEDA select what an engine that has answered really shows."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.install.promql import TARGET_LABELS, expressions, recorded, selecting_nothing, selectors

OPERATORS = "octavo_scaling_"


def test_labels_of_the_engines_metrics_select_something(start_server) -> None:
    server = start_server()
    server.complete(prompt="xy", max_tokens=3)
    page = server.http.get("/metrics").text
    samples = [
        (one.name, {**TARGET_LABELS, **one.labels})
        for family in text_string_to_metric_families(page)
        for one in family.samples
    ]
    of_engines = [
        one
        for text in expressions()
        for one in selectors(text)
        if not one.name.startswith(OPERATORS) and one.name not in recorded()
    ]
    assert of_engines
    assert selecting_nothing(of_engines, samples) == []
