"""HTTPRoutes and InferencePools: shares, backends, and what a gateway needs to know."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from octavo_operator.api import names
from octavo_operator.api.spec import Routing
from octavo_operator.desired.http_route import build_http_route
from octavo_operator.desired.inference_pool import build_inference_pools
from octavo_operator.desired.service import build_revision_service
from tests.octavo_operator.builders import OWNER

PARENT = {"name": "public", "namespace": "gateways", "sectionName": "https"}
ROUTE = {"parentRefs": [PARENT, {"name": "inside"}], "hostnames": ["chat.example.com"]}
PICKER = {"endpointPickerRef": {"name": "epp"}}


def routing(**fields: Any) -> Routing:
    return Routing.model_validate({"port": 9000, "httpRoute": ROUTE, **fields})


def backends(route: dict[str, Any]) -> list[dict[str, Any]]:
    (rule,) = route["spec"]["rules"]
    found: list[dict[str, Any]] = rule["backendRefs"]
    return found


def test_route_is_attached_as_the_user_says() -> None:
    spec = build_http_route(OWNER, routing(), {"aaa": 100})["spec"]
    assert spec["parentRefs"] == [PARENT, {"name": "inside"}]
    assert spec["hostnames"] == ["chat.example.com"]


def test_route_without_host_names_leaves_them_to_the_gateway() -> None:
    spec = build_http_route(OWNER, routing(httpRoute={"parentRefs": [PARENT]}), {"aaa": 100})["spec"]
    assert "hostnames" not in spec


def test_route_shares_traffic_between_the_revisions_own_services() -> None:
    route = build_http_route(OWNER, routing(), {"bbb": 10, "aaa": 90, "ccc": 0})
    assert backends(route) == [
        {"group": "", "kind": "Service", "name": "chat-aaa", "port": 9000, "weight": 90},
        {"group": "", "kind": "Service", "name": "chat-bbb", "port": 9000, "weight": 10},
    ]


def test_route_points_at_pools_when_a_picker_is_named() -> None:
    route = build_http_route(OWNER, routing(inferencePool=PICKER), {"aaa": 90, "bbb": 10})
    assert backends(route) == [
        {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": name, "weight": weight}
        for name, weight in (("chat-aaa", 90), ("chat-bbb", 10))
    ]


def test_each_pool_holds_the_pods_of_one_revision() -> None:
    pools = build_inference_pools(OWNER, routing(inferencePool=PICKER), {"bbb", "aaa"})
    assert [pool["metadata"]["name"] for pool in pools] == ["chat-aaa", "chat-bbb"]
    spec = pools[0]["spec"]
    assert spec["selector"] == {"matchLabels": names.pod_selector(OWNER.name, "aaa")}
    assert spec["targetPorts"] == [{"number": 9000}]
    assert spec["endpointPickerRef"] == {
        "group": "",
        "kind": "Service",
        "name": "epp",
        "port": {"number": 9002},
    }


def test_revisions_service_selects_that_revision_alone() -> None:
    service = build_revision_service(OWNER, "aaa", port=9000)
    assert service["metadata"]["name"] == "chat-aaa"
    assert service["spec"]["selector"] == names.pod_selector(OWNER.name, "aaa")
    assert service["spec"]["ports"][0]["port"] == 9000


@given(st.dictionaries(st.sampled_from(["aaa", "bbb", "ccc"]), st.integers(1, 100), min_size=1))
def test_route_keeps_every_share_and_the_order_of_names(weights: dict[str, int]) -> None:
    route = build_http_route(OWNER, routing(), weights)
    assert {one["name"]: one["weight"] for one in backends(route)} == {
        f"chat-{revision}": weight for revision, weight in weights.items()
    }
    assert route == build_http_route(OWNER, routing(), dict(reversed(weights.items())))
