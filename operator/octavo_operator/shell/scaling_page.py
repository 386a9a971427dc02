"""Every term of the decisions, for people's dashboards and for other autoscalers.

The numbers are those that the last round left; nothing is computed here. The page of metrics is read in a
thread of its own, so all it touches are values that are replaced, never changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from octavo_operator.decide.scaling import ScalingDecision, ScalingFigures
from octavo_operator.decide.scaling.publishing import BLIND
from octavo_operator.decide.scaling.report import autoscaling_status
from octavo_operator.shell.cache import Key

Published = Callable[[], Iterable[tuple[Key, str, ScalingDecision]]]
"""Key, mode and decision of each service that the planner looks after."""

PREFIX: Final = "octavo_scaling_"
PLACE: Final = ("namespace", "service")
RECOMMENDATIONS_PATH: Final = "/recommendations/"

TERMS: Final[tuple[tuple[str, str, Callable[[ScalingFigures], float | None]], ...]] = (
    ("demand_requests_per_second", "Arrivals, the mean of the last minute.", lambda f: f.demand_rate),
    ("expected_requests_per_second", "Arrivals to expect after a cold start.", lambda f: f.expected_rate),
    ("replica_requests_per_second", "What a replica is loaded to.", lambda f: f.replica_rate),
    ("headroom_ratio", "Growth of demand to be ready for.", lambda f: f.headroom),
    ("occupied_replicas", "Replicas that sequences fill now.", lambda f: f.occupied_replicas),
    ("needed_replicas", "Before anything delays or blocks it.", lambda f: f.desired),
    ("limit_tpot_requests_per_second", "Most of a replica by TPOT.", lambda f: f.capacity.tpot_rate),
    ("limit_ttft_requests_per_second", "Most of a replica by TTFT.", lambda f: f.capacity.ttft_rate),
    ("limit_memory_requests_per_second", "Most of a replica by places.", lambda f: f.capacity.kv_rate),
    ("replica_sequences", "Most sequences of a replica at once.", lambda f: f.capacity.sequences),
    ("tpot_seconds", "Modelled, at a replica's most.", lambda f: f.capacity.tpot_seconds),
    ("ttft_seconds", "Modelled, at a replica's most.", lambda f: f.capacity.ttft_seconds),
    ("step_base_seconds", "Learned: what every step takes.", lambda f: f.costs.base_seconds),
    ("step_prefill_token_seconds", "Learned.", lambda f: f.costs.prefill_token_seconds),
    ("step_context_token_seconds", "Learned.", lambda f: f.costs.context_token_seconds),
    ("step_sequence_seconds", "Learned.", lambda f: f.costs.sequence_seconds),
    ("memory_share_ratio", "Of the KV cache that is planned with.", lambda f: f.memory_share),
    ("cold_start_seconds", "From a pod's creation to Ready, P90.", lambda f: f.cold_start_seconds),
    ("starting_pods", "Pods on their way.", lambda f: f.starting),
    ("unschedulable_pods", "Pods that no node takes.", lambda f: f.unschedulable),
    ("burn_ratio", "Misses of the objective over those allowed, 5 minutes.", lambda f: f.burn),
)


class ScalingCollector(Collector):
    """Gauges made anew for each scrape: no service outlives itself in them."""

    def __init__(self, published: Published) -> None:
        self._published = published

    def collect(self) -> Iterator[Metric]:
        """One family for each term, then the number, its reason and what limits a replica."""
        decisions = list(self._published())
        for name, text, term in TERMS:
            yield self._term(decisions, name, text, term)
        desired = GaugeMetricFamily(f"{PREFIX}desired_replicas", "The planner's number.", labels=PLACE)
        reason = GaugeMetricFamily(f"{PREFIX}reason", "1 for the reason.", labels=(*PLACE, "reason"))
        limit = GaugeMetricFamily(f"{PREFIX}limited_by", "1 for the limit.", labels=(*PLACE, "limit"))
        for key, _, decision in decisions:
            desired.add_metric(key, desired_of(decision))
            reason.add_metric((*key, decision.reason), 1)
            if decision.figures is not None:
                limit.add_metric((*key, decision.figures.capacity.limited_by), 1)
        yield from (desired, reason, limit)

    def _term(
        self,
        decisions: Iterable[tuple[Key, str, ScalingDecision]],
        name: str,
        text: str,
        term: Callable[[ScalingFigures], float | None],
    ) -> Metric:
        family = GaugeMetricFamily(f"{PREFIX}{name}", text, labels=PLACE)
        for key, _, decision in decisions:
            value = term(decision.figures) if decision.figures is not None else None
            if value is not None:
                family.add_metric(key, value)
        return family


def desired_of(decision: ScalingDecision) -> int:
    return decision.replicas if decision.recommended is None else decision.recommended


def find_recommendation(path: str, published: Published) -> tuple[str, dict[str, Any]]:
    """HTTP status and body for `/recommendations/<namespace>/<service>`.

    A number that nobody could compute is an error, never a number: KEDA then uses its own fallback.
    """
    parts = path.removeprefix(RECOMMENDATIONS_PATH).split("/")
    found = [one for one in published() if [*one[0]] == parts]
    if not found:
        known = "no service under mode SLO or Recommend has that namespace and name, or none was read yet"
        return "404 Not Found", {"error": known, "path": f"{RECOMMENDATIONS_PATH}<namespace>/<service>"}
    ((namespace, name), mode, decision) = found[0]
    said = autoscaling_status(decision, None).model_dump(mode="json", by_alias=True, exclude_none=True)
    if decision.figures is None or decision.reason in BLIND:
        return "503 Service Unavailable", {"error": decision.message, "reason": decision.reason}
    place = {"namespace": namespace, "service": name, "mode": mode}
    return "200 OK", {**place, **said, "desiredReplicas": desired_of(decision)}


def with_recommendations(metrics: WSGIApplication, published: Published) -> WSGIApplication:
    """A WSGI application: recommendations as JSON, everything else as the application of the metrics."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = str(environ.get("PATH_INFO", ""))
        if not path.startswith(RECOMMENDATIONS_PATH):
            return metrics(environ, start_response)
        status, body = find_recommendation(path, published)
        start_response(status, [("Content-Type", "application/json")])
        return [json.dumps(body).encode()]

    return answer
