"""What a revision's pods may reach and who may reach them, derived from their own template."""

from __future__ import annotations

import copy
import ipaddress
from typing import Any

import pytest

from octavo import engine_contract as contract
from octavo_operator.api import names
from octavo_operator.desired.network_policy import build_network_policy, build_resolver_policy, endpoint_port
from octavo_operator.desired.resolver_pod import Question, build_resolver_pod
from tests.octavo_operator.builders import OWNER, make_revision, make_spec


def template_with(endpoint: str, **sections: Any) -> dict[str, Any]:
    template = copy.deepcopy(make_revision(make_spec(**sections)).template)
    fetch = template["spec"]["initContainers"][0]
    fetch["env"] = [one for one in fetch["env"] if one["name"] != "HF_ENDPOINT"]
    if endpoint:
        fetch["env"].append({"name": "HF_ENDPOINT", "value": endpoint})
    return template


def policy_of(template: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = build_network_policy(OWNER, "abc", template)["spec"]
    return spec


def may_reach(spec: dict[str, Any], address: str, port: int, protocol: str = "TCP") -> bool:
    """NetworkPolicy's rules: any rule that has both the port and the address."""
    return any(
        any((one["protocol"], one["port"]) == (protocol, port) for one in rule["ports"])
        and ("to" not in rule or any(holds(peer["ipBlock"], address) for peer in rule["to"]))
        for rule in spec.get("egress", ())
    )


def holds(block: dict[str, Any], address: str) -> bool:
    ip = ipaddress.ip_address(address)

    def within(cidr: str) -> bool:
        network = ipaddress.ip_network(cidr)
        return network.version == ip.version and ip in network

    return within(block["cidr"]) and not any(within(one) for one in block["except"])


@pytest.mark.parametrize("port", [8000, 9000])
def test_only_the_engine_and_the_progress_of_its_fetch_can_be_reached(port: int) -> None:
    spec = policy_of(template_with("", routing={"port": port}))
    (rule,) = spec["ingress"]
    assert [one["port"] for one in rule["ports"]] == sorted((port, contract.FETCH_PROGRESS_PORT))
    assert {one["protocol"] for one in rule["ports"]} == {"TCP"}
    assert "from" not in rule
    assert spec["podSelector"] == {"matchLabels": names.pod_selector(OWNER.name, "abc")}
    assert spec["policyTypes"] == ["Ingress", "Egress"]


@pytest.mark.parametrize(
    ("address", "port", "reached"),
    [
        pytest.param("1.2.3.4", 443, True, id="public hub"),
        pytest.param("2600::1", 443, True, id="public hub, IPv6"),
        pytest.param("1.2.3.4", 80, False, id="no plain HTTP"),
        pytest.param("10.96.0.1", 443, False, id="API server"),
        pytest.param("192.168.1.1", 443, False, id="private network"),
        pytest.param("169.254.169.254", 443, False, id="cloud metadata"),
        pytest.param("fd00::1", 443, False, id="private network, IPv6"),
        pytest.param("10.96.0.10", 53, True, id="names"),
    ],
)
def test_public_hub_is_reached_and_nothing_private(address: str, port: int, reached: bool) -> None:
    assert may_reach(policy_of(template_with("")), address, port) is reached


def test_names_are_asked_over_udp_too() -> None:
    assert may_reach(policy_of(template_with("")), "169.254.20.10", 53, "UDP")


@pytest.mark.parametrize(
    ("endpoint", "ports"),
    [
        ("http://hub.models.svc:8080", (443, 8080)),
        ("http://hub.example", (80, 443)),
        ("https://user:secret@[fd00::1]:8443/mirror", (443, 8443)),
    ],
)
def test_configured_hub_may_be_inside_and_may_redirect(endpoint: str, ports: tuple[int, ...]) -> None:
    spec = policy_of(template_with(endpoint))
    assert all(may_reach(spec, "10.0.0.7", port) for port in ports)
    assert not may_reach(spec, "10.0.0.7", 6443)
    assert endpoint_port(endpoint) in ports


@pytest.mark.parametrize("uri", ["pvc://models/tiny", "oci://registry.example/tiny@sha256:0"])
def test_pod_that_asks_no_hub_reaches_nothing(uri: str) -> None:
    template = template_with("")
    args = template["spec"]["initContainers"][0]["args"]
    args[args.index("--uri") + 1] = uri
    spec = policy_of(template)
    assert "egress" not in spec
    assert "Egress" in spec["policyTypes"]


def test_pod_without_a_fetch_container_reaches_nothing() -> None:
    template = template_with("")
    del template["spec"]["initContainers"]
    assert "egress" not in policy_of(template)


def resolver_policy(uri: str, endpoint: str = "") -> dict[str, Any]:
    model = make_spec(model={"uri": uri}).model
    spec: dict[str, Any] = build_resolver_policy(OWNER, model, endpoint)["spec"]
    return spec


def test_resolver_of_a_private_repository_reaches_the_hub_and_nobody_reaches_it() -> None:
    """It had no policy at all, though it holds the token."""
    spec = resolver_policy("hf://organization/private")
    assert may_reach(spec, "1.2.3.4", 443)
    assert may_reach(spec, "10.96.0.10", 53, "UDP")
    assert not may_reach(spec, "10.96.0.1", 443)
    assert "ingress" not in spec
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert may_reach(resolver_policy("hf://organization/private", "http://hub:8080"), "10.0.0.7", 8080)


@pytest.mark.parametrize("uri", ["pvc://models/tiny", "oci://registry.example/tiny:1"])
def test_resolver_that_reads_files_reaches_nothing(uri: str) -> None:
    assert "egress" not in resolver_policy(uri, "http://hub:8080")


def test_policy_of_resolvers_selects_them_and_no_engine() -> None:
    selector = resolver_policy("pvc://models/tiny")["podSelector"]
    question = Question(model=make_spec().model, revision="main", image="engine:1", hub_endpoint="")
    resolver = build_resolver_pod(OWNER, question)["metadata"]["labels"]
    engine = make_revision().template["metadata"]["labels"]
    assert selector["matchLabels"].items() <= resolver.items()
    (expression,) = selector["matchExpressions"]
    assert expression["operator"] == "Exists"
    assert expression["key"] in resolver
    assert expression["key"] not in engine
