"""What service accounts asked of the API server, by its own audit log.

Kubernetes' controllers are service accounts too and are left out; so are people, who may do anything here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tests.cluster.local.paths import ClusterPaths

POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}
CREATED: Final = 201
DECISION: Final = "authorization.k8s.io/decision"
"""What the access rules said. A 403 alone may also be a namespace that is ending, or an admission plugin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of one account, in the terms of access rules."""

    account: str
    """`namespace:name`"""
    verb: str
    namespace: str
    """Of the object; empty where it is in none."""
    group: str
    resource: str
    """With its subresource: `pods/status`."""
    code: int
    denied: bool
    """No access rule allowed it."""

    @property
    def accesses(self) -> frozenset[tuple[str, str, str]]:
        """What had to be granted: an apply that makes a new object needs the right to create it as well."""
        verbs = {self.verb, "create"} if (self.verb, self.code) == ("patch", CREATED) else {self.verb}
        return frozenset((self.group, self.resource, verb) for verb in verbs)


def write_audit_policy(paths: ClusterPaths) -> Path:
    path = paths.config / "audit-policy.yaml"
    path.write_text(yaml.safe_dump(POLICY, sort_keys=False))
    return path


def read_requests(log: Path, account: str) -> Iterator[Request]:
    """All requests for objects that `account` (`namespace:name`) has made so far."""
    user = f"system:serviceaccount:{account}"
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["user"]["username"] == user and "objectRef" in event:
            yield _parse(event, account)


def _parse(event: dict[str, dict[str, str]], account: str) -> Request:
    place, answer = event["objectRef"], event.get("responseStatus", {})
    subresource = place.get("subresource", "")
    return Request(
        account=account,
        verb=str(event["verb"]),
        namespace=place.get("namespace", ""),
        group=place.get("apiGroup", ""),
        resource=place["resource"] + (f"/{subresource}" if subresource else ""),
        code=int(answer.get("code", 0)),
        denied=event.get("annotations", {}).get(DECISION) == "forbid",
    )
