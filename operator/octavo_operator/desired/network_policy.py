"""NetworkPolicies: of one revision, what its own pod template needs, and nothing else; of resolver pods.

Ingress: the ports that its containers declare, from anywhere; who may ask a model is decided in front of
it, by a gateway or by a policy of the user's own (policies add up).

Egress: a policy covers a pod, not a container, so what the fetch container needs is open to the engine
too. That is names (port 53, wherever the cluster keeps its resolver) and the hub. The public hub redirects
to storage whose addresses change, so it is any *public* address on 443: no address of the cluster, of a
private network, or of a cloud's metadata service. A hub that the operator was configured with may be
inside, so its port is open to any address, beside 443 for redirects. A pod that fetches from no hub
reaches nothing.

Resolver pods reach what fetching from their source needs, and nobody reaches them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from octavo import engine_contract as contract
from octavo.model_source import HubSource, parse_model_uri
from octavo_operator.api import names
from octavo_operator.api.spec import ModelSource
from octavo_operator.desired.metadata import Manifest, Owner, build_metadata

DNS_PORT: Final = 53
HTTPS_PORT: Final = 443
DEFAULT_PORTS: Final = {"http": 80, "https": HTTPS_PORT}
HUB_SCHEME: Final = "hf://"
HUB_ENDPOINT_ENV: Final = "HF_ENDPOINT"
ENDPOINT_PATTERN: Final = r"(https?)://(?:[^/@]*@)?(?:\[[^\]]*\]|[^/:]*)(?::([0-9]+))?(?:/.*)?"
PUBLIC_IPV4: Final = {
    "cidr": "0.0.0.0/0",
    "except": ["10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"],
}
PUBLIC_IPV6: Final = {"cidr": "::/0", "except": ["fc00::/7", "fe80::/10"]}


def build_network_policy(owner: Owner, revision: str, template: Mapping[str, Any]) -> Manifest:
    name = names.revision_name(owner.name, revision)
    egress = build_egress(find_hub(template))
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": build_metadata(owner, name, names.revision_labels(owner.name, revision)),
        "spec": {
            "podSelector": {"matchLabels": names.pod_selector(owner.name, revision)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": build_ports("TCP", declared_ports(template))}],
            # An empty list would not be stored, and would differ from what is for ever.
            **({"egress": egress} if egress else {}),
        },
    }


def declared_ports(template: Mapping[str, Any]) -> tuple[int, ...]:
    declared = (port for container in containers(template) for port in container.get("ports", ()))
    return tuple(sorted({port["containerPort"] for port in declared}))


def containers(template: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    pod = template["spec"]
    return (*pod.get("initContainers", ()), *pod["containers"])


def build_resolver_policy(owner: Owner, model: ModelSource, hub_endpoint: str) -> Manifest:
    """Of all resolver pods of one service."""
    on_hub = isinstance(parse_model_uri(model.uri), HubSource)
    egress = build_egress(hub_endpoint if on_hub else None)
    selector = {
        "matchLabels": {names.LABEL_SERVICE: owner.name},
        "matchExpressions": [{"key": names.LABEL_QUESTION, "operator": "Exists"}],
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": build_metadata(
            owner, names.resolver_policy_name(owner.name), names.service_labels(owner.name)
        ),
        "spec": {
            "podSelector": selector,
            "policyTypes": ["Ingress", "Egress"],
            **({"egress": egress} if egress else {}),
        },
    }


def build_egress(endpoint: str | None) -> list[dict[str, Any]]:
    """To a hub; "" is the public one, None is none."""
    if endpoint is None:
        return []
    names_rule = {"ports": [*build_ports("UDP", (DNS_PORT,)), *build_ports("TCP", (DNS_PORT,))]}
    if endpoint:
        ports = sorted({endpoint_port(endpoint), HTTPS_PORT})
        return [names_rule, {"ports": build_ports("TCP", ports)}]
    public = [{"ipBlock": {**block, "except": list(block["except"])}} for block in (PUBLIC_IPV4, PUBLIC_IPV6)]
    return [names_rule, {"ports": build_ports("TCP", (HTTPS_PORT,)), "to": public}]


def find_hub(template: Mapping[str, Any]) -> str | None:
    """The hub that the fetch container asks; empty for the public one, None if it asks none."""
    for container in template["spec"].get("initContainers", ()):
        if container["name"] != names.CONTAINER_FETCH:
            continue
        pairs = zip(container["args"], container["args"][1:], strict=False)
        if any(flag == contract.FLAG_FETCH_URI and uri.startswith(HUB_SCHEME) for flag, uri in pairs):
            env = {one["name"]: one.get("value", "") for one in container.get("env", ())}
            return str(env.get(HUB_ENDPOINT_ENV, ""))
    return None


def endpoint_port(endpoint: str) -> int:
    """
    >>> endpoint_port("http://hub.example:8080/api"), endpoint_port("https://[fd00::1]")
    (8080, 443)
    """
    match = re.fullmatch(ENDPOINT_PATTERN, endpoint)
    if match is None:
        return HTTPS_PORT
    return int(match[2]) if match[2] else DEFAULT_PORTS[match[1]]


def build_ports(protocol: str, ports: Iterable[int]) -> list[dict[str, Any]]:
    return [{"protocol": protocol, "port": port} for port in ports]
