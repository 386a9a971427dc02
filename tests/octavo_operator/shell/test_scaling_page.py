"""Metrics and recommendations: what the last round decided, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from octavo_operator.decide.scaling import ScalingDecision
from octavo_operator.decide.scaling.publishing import recommend
from octavo_operator.shell.meters import Meters
from octavo_operator.shell.scaling_page import TERMS, Published
from octavo_operator.shell.victims import costs_to_set
from tests.cluster.stage import free_port
from tests.octavo_operator.builders import make_deployment, make_pod, make_spec, make_world
from tests.octavo_operator.decide.scaling.engines import Service

KEY = ("prod", "chat")


def decided() -> ScalingDecision:
    service = Service(replicas=2)
    service.run(600, 4.0)
    return service.history[-1][1]


@contextmanager
def page(published: Published) -> Iterator[str]:
    port = free_port()
    Meters().serve(f"127.0.0.1:{port}", published)
    yield f"http://127.0.0.1:{port}"


def ask(url: str) -> tuple[int, dict[str, object]]:
    try:
        with urlopen(url, timeout=5) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def test_metrics_hold_every_term_of_the_decision() -> None:
    decision = decided()
    with page(lambda: [(KEY, "SLO", decision)]) as url, urlopen(f"{url}/metrics", timeout=5) as answer:
        families = {one.name: one for one in text_string_to_metric_families(answer.read().decode())}
    assert "octavo_operator_passes" in families
    for name, _, _ in TERMS:
        (sample,) = families[f"octavo_scaling_{name}"].samples
        assert sample.labels == {"namespace": "prod", "service": "chat"}
    assert families["octavo_scaling_desired_replicas"].samples[0].value == 2
    assert families["octavo_scaling_reason"].samples[0].labels["reason"] == "LoadOnTarget"
    assert families["octavo_scaling_limited_by"].samples[0].labels["limit"] == "MaxSequences"


def test_metrics_forget_a_service_that_is_gone() -> None:
    services = [(KEY, "SLO", decided())]
    with page(lambda: list(services)) as url:
        services.clear()
        with urlopen(f"{url}/metrics", timeout=5) as answer:
            assert "prod" not in answer.read().decode()


def test_recommendation_is_the_planners_number() -> None:
    decision = recommend(decided(), 5)
    with page(lambda: [(KEY, "Recommend", decision)]) as url:
        status, body = ask(f"{url}/recommendations/prod/chat")
    assert status == 200
    assert (body["desiredReplicas"], body["mode"], body["limitedBy"]) == (2, "Recommend", "MaxSequences")
    assert body["demandMilliRPS"] == 4000


@pytest.mark.parametrize(
    ("path", "changes", "status"),
    [
        pytest.param("prod/other", {}, 404, id="another name"),
        pytest.param("prod", {}, 404, id="no name"),
        pytest.param("prod/chat/more", {}, 404, id="too long"),
        pytest.param("prod/chat", {"figures": None}, 503, id="nothing was computed"),
        pytest.param("prod/chat", {"reason": "MetricsMissing"}, 503, id="nothing can be read"),
        pytest.param("prod/chat", {"reason": "MetricsFallback"}, 503, id="nothing was read for minutes"),
    ],
)
def test_recommendation_is_an_error_and_never_a_number(
    path: str, changes: dict[str, object], status: int
) -> None:
    decision = replace(decided(), **changes)  # type: ignore[arg-type]
    with page(lambda: [(KEY, "Recommend", decision)]) as url:
        found, body = ask(f"{url}/recommendations/{path}")
    assert found == status
    assert "desiredReplicas" not in body
    assert body["error"]


def falling(**changes: object) -> ScalingDecision:
    decision = ScalingDecision(replicas=2, reason="LoadBelowTarget", message="", victims=("pod-1",))
    return replace(decision, **changes)  # type: ignore[arg-type]


def test_victims_are_marked_and_marks_of_others_taken_back() -> None:
    pods = (
        make_pod("r", name="pod-0", ready=True),
        make_pod("r", name="pod-1", ready=True),
        make_pod("r", name="pod-2", ready=True, deletion_cost="-100"),
        make_pod("other", name="pod-3", ready=True),
    )
    world = make_world(selected="r", pods=pods, deployments={"r": make_deployment("r", wanted=3)})
    assert costs_to_set(world, falling()) == {"pod-1": "-100", "pod-2": "0"}


@pytest.mark.parametrize(
    ("decision", "suspend"),
    [
        pytest.param(falling(replicas=3), False, id="the number stands"),
        pytest.param(falling(replicas=4), False, id="the number rises"),
        pytest.param(falling(victims=()), False, id="nobody is named"),
        pytest.param(falling(), True, id="suspended"),
    ],
)
def test_nobody_is_marked_when(decision: ScalingDecision, suspend: bool) -> None:
    world = make_world(
        spec=make_spec(suspend=suspend),
        selected="r",
        pods=(make_pod("r", name="pod-1", ready=True),),
        deployments={"r": make_deployment("r", wanted=3)},
    )
    assert costs_to_set(world, decision) == {}
