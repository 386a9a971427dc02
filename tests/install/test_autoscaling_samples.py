"""Samples for other autoscalers and for Prometheus: they name what there is, and the schemas take them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from octavo import engine_contract as contract
from octavo_operator.api import names
from octavo_operator.api.spec import InferenceServiceSpec
from octavo_operator.shell.engine_page import HISTOGRAMS
from octavo_operator.shell.scaling_page import PREFIX, RECOMMENDATIONS_PATH, TERMS
from tests.cluster.local.cluster import Cluster
from tests.cluster.local.definitions import AUTOSCALING_DEFINITIONS, require_definitions
from tests.cluster.stage import install_definition
from tests.install.paths import MANIFEST, NAMESPACE

FOLDER = Path(__file__).resolve().parents[2] / "manifests" / "autoscaling"
FILES = sorted(FOLDER.glob("*.yaml"))
NAME = re.compile(r"(?:vllm:|octavo_)[a-z_]+")
OURS = {f"{PREFIX}{name}" for name, _, _ in TERMS} | {
    f"{PREFIX}{name}" for name in ("desired_replicas", "reason", "limited_by")
}
ENGINES = {value for name, value in vars(contract).items() if name.isupper() and isinstance(value, str)} | {
    f"{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "count", "sum")
}


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [one for path in FILES for one in documents(path) if one["kind"] == kind]


def expressions() -> list[str]:
    rules = [
        rule
        for one in of_kind("PrometheusRule")
        for group in one["spec"]["groups"]
        for rule in group["rules"]
    ]
    queries = [
        trigger["metadata"]["query"]
        for one in of_kind("ScaledObject")
        for trigger in one["spec"]["triggers"]
        if trigger["type"] == "prometheus"
    ]
    return [rule["expr"] for rule in rules] + queries


def recorded() -> set[str]:
    return {
        rule["record"]
        for one in of_kind("PrometheusRule")
        for group in one["spec"]["groups"]
        for rule in group["rules"]
        if "record" in rule
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
    named = {name for text in expressions() for name in NAME.findall(text)} - {"octavo_dev_service"}
    assert named - OURS - ENGINES - recorded() == set()
    assert "vllm:num_requests_running" in named


def test_recorded_name_is_the_one_that_the_autoscaler_reads() -> None:
    (autoscaler,) = of_kind("HorizontalPodAutoscaler")
    (metric,) = autoscaler["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] in recorded()


def test_bounds_of_the_rules_are_bounds_of_the_engine() -> None:
    histogram = pytest.importorskip("octavo_engine.server.histogram")
    known = {str(float(bound)) for bound in histogram.fine_bounds()}
    named = {bound for text in expressions() for bound in re.findall(r'le="([^"]+)"', text)}
    assert named
    assert named <= known


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
