"""Samples for other autoscalers and for Prometheus: they name what there is, and the schemas take them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from octavo import engine_contract as contract
from octavo_operator.api import names
from octavo_operator.api.spec import InferenceServiceSpec, ServiceLevelObjective
from octavo_operator.decide.scaling import ScalingDecision
from octavo_operator.shell.engine_page import HISTOGRAMS
from octavo_operator.shell.scaling_page import PREFIX, RECOMMENDATIONS_PATH, TERMS, ScalingCollector
from tests.cluster.local.cluster import Cluster
from tests.cluster.local.definitions import AUTOSCALING_DEFINITIONS, require_definitions
from tests.cluster.stage import install_definition
from tests.install.paths import MANIFEST, NAMESPACE
from tests.install.promql import (
    FOLDER,
    documents,
    expressions,
    groupings,
    of_kind,
    recorded,
    rules,
    selecting_nothing,
    selectors,
)
from tests.octavo_operator.builders import make_revision
from tests.octavo_operator.decide.scaling.engines import Service

FILES = sorted(FOLDER.glob("*.yaml"))
ALERTED = re.compile(r"\$labels\.([a-z_]+)")
OURS = {f"{PREFIX}{name}" for name, _, _ in TERMS} | {
    f"{PREFIX}{name}" for name in ("desired_replicas", "reason", "limited_by")
}
ENGINES = {value for name, value in vars(contract).items() if name.isupper() and isinstance(value, str)} | {
    f"{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "count", "sum")
}


def test_samples_are_those_that_the_guide_speaks_of() -> None:
    assert [path.name for path in FILES] == [
        "hpa.yaml",
        "keda-metrics-api.yaml",
        "keda-prometheus.yaml",
        "prometheus.yaml",
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_autoscalers_name_the_service_of_their_sample_and_leave_it_its_number(path: Path) -> None:
    found = {one["metadata"]["name"]: one["spec"] for one in documents(path) if one["kind"] == names.KIND}
    scalers = [one for one in documents(path) if "scaleTargetRef" in one["spec"]]
    for one in scalers:
        target = one["spec"]["scaleTargetRef"]
        assert (target["apiVersion"], target["kind"]) == (names.API_VERSION, names.KIND)
        spec = InferenceServiceSpec.model_validate(found[target["name"]])
        assert spec.autoscaling is not None
        assert spec.autoscaling.mode in ("External", "Recommend")
        assert "replicas" not in found[target["name"]]
        least, most = (one["spec"].get(f"m{kind}Replicas") for kind in ("in", "ax"))
        least = one["spec"].get("minReplicaCount", least)
        most = one["spec"].get("maxReplicaCount", most)
        assert (least, most) == (spec.autoscaling.min_replicas, spec.autoscaling.max_replicas)


def test_expressions_name_metrics_that_exist() -> None:
    named = {one.name for text in expressions() for one in selectors(text)}
    assert named - OURS - ENGINES - recorded() == set()
    assert "vllm:num_requests_running" in named


def blind() -> ScalingDecision:
    """After minutes in which no engine answers."""
    service = Service(replicas=2)
    service.run(300, 4.0)
    for engine in service.engines:
        engine.reason = "timeout"
    service.run(60, 0.0)
    return service.history[-1][1]


def operators_samples() -> list[tuple[str, dict[str, str]]]:
    published = ScalingCollector(lambda: [(("default", "chat"), "SLO", blind())])
    return [(one.name, one.labels) for family in published.collect() for one in family.samples]


def test_labels_of_the_operators_metrics_select_something() -> None:
    of_ours = [one for text in expressions() for one in selectors(text) if one.name in OURS]
    assert of_ours
    assert selecting_nothing(of_ours, operators_samples()) == []


def test_alerts_name_labels_that_their_series_have() -> None:
    by_record = {rule["record"]: groupings(rule["expr"])[0] for rule in rules() if "record" in rule}
    ours = {name: frozenset(labels) for name, labels in operators_samples()}
    for rule in rules():
        for grouping in groupings(rule["expr"]):
            assert grouping == {"namespace", "octavo_dev_service"}, rule
        if "alert" in rule:
            first = selectors(rule["expr"])[0].name
            has = (groupings(rule["expr"]) or [by_record.get(first) or ours[first]])[0]
            assert set(ALERTED.findall(rule["annotations"]["summary"])) <= has, rule["alert"]


def test_monitors_find_the_pods_and_their_ports() -> None:
    engine, operator = of_kind("PodMonitor")
    template = make_revision().template
    assert engine["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert set(engine["spec"]["podTargetLabels"]) <= set(template["metadata"]["labels"])
    assert engine["spec"]["podMetricsEndpoints"][0]["port"] in ports_of(template)
    (shipped,) = [one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"] == "Deployment"]
    template = shipped["spec"]["template"]
    assert operator["spec"]["namespaceSelector"]["matchNames"] == [NAMESPACE]
    assert operator["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert operator["spec"]["podMetricsEndpoints"][0]["port"] in ports_of(template)


def ports_of(template: Mapping[str, Any]) -> list[str]:
    return [port["name"] for one in template["spec"]["containers"] for port in one.get("ports", ())]


def test_recorded_name_is_the_one_that_the_autoscaler_reads() -> None:
    (autoscaler,) = of_kind("HorizontalPodAutoscaler")
    (metric,) = autoscaler["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] in recorded()


def test_bounds_of_the_rules_are_the_engines_last_ones_within_the_default_objective() -> None:
    histogram = pytest.importorskip("octavo_engine.server.histogram")
    slo = ServiceLevelObjective()
    for name, limit in (
        (contract.TTFT_SECONDS, slo.ttft_milliseconds / 1000),
        (contract.TPOT_SECONDS, slo.tpot_milliseconds / 1000),
    ):
        bound = max(float(one) for one in histogram.fine_bounds() if float(one) <= limit)
        selected = {
            matcher
            for text in expressions()
            for one in selectors(text)
            if one.name == f"{name}_bucket"
            for matcher in one.matchers
        }
        assert selected == {("le", "=", str(bound))}


def test_recommendations_are_asked_where_the_installation_answers() -> None:
    (url,) = [
        trigger["metadata"]["url"]
        for one in of_kind("ScaledObject")
        for trigger in one["spec"]["triggers"]
        if trigger["type"] == "metrics-api"
    ]
    (service,) = [
        one
        for one in yaml.safe_load_all(MANIFEST.read_text())
        if one["kind"] == "Service" and one["metadata"]["name"] == "octavo-operator-metrics"
    ]
    (port,) = service["spec"]["ports"]
    host = f"{service['metadata']['name']}.{NAMESPACE}.svc:{port['port']}"
    assert url == f"http://{host}{RECOMMENDATIONS_PATH}default/chat"


@pytest.mark.cluster
def test_a_real_api_server_takes_every_sample(light_cluster: Cluster) -> None:
    require_definitions(AUTOSCALING_DEFINITIONS)
    install_definition(light_cluster)
    for definitions in AUTOSCALING_DEFINITIONS:
        for path in definitions.paths:
            light_cluster.kubectl("apply", "--server-side", "-f", str(path))
            light_cluster.kubectl("wait", "--for=condition=Established", "-f", str(path), "--timeout=30s")
    for path in FILES:
        light_cluster.kubectl(
            "apply", "--server-side", "--dry-run=server", "--validate=strict", "--namespace=default",
            "-f", str(path),
        )  # fmt: skip
