"""Exactly what the operator may do; the chart's role is generated from here.

No access to Secrets, none to nodes. Of pods the operator makes and deletes only resolvers: Deployments own
the others, and the one thing written to those is the annotation that tells a ReplicaSet which to give up
first. Rights on kinds that a cluster does not have are without effect. The Lease lies in the operator's own
namespace, and so does the Role for it.
"""

from __future__ import annotations

from typing import Any, Final

from octavo_operator.api.names import GROUP, LEASE_NAME, PLURAL

READ: Final = ("get", "list", "watch")
WRITE: Final = ("create", "patch", "delete")
"""Server-side apply is a patch, and a create where the object is new."""


def rule(group: str, resources: tuple[str, ...], verbs: tuple[str, ...]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def build_rules() -> list[dict[str, Any]]:
    """The rules of the operator's ClusterRole, or of its Role when it watches one namespace."""
    return [
        rule(GROUP, (PLURAL,), ("list", "watch")),
        rule(GROUP, (f"{PLURAL}/status",), ("patch",)),
        rule("apps", ("deployments", "controllerrevisions"), (*READ, *WRITE)),
        rule("", ("services",), (*READ, *WRITE)),
        rule("", ("configmaps",), (*READ, "create", "patch")),
        rule("policy", ("poddisruptionbudgets",), (*READ, *WRITE)),
        rule("networking.k8s.io", ("networkpolicies",), (*READ, *WRITE)),
        rule("gateway.networking.k8s.io", ("httproutes",), (*READ, *WRITE)),
        rule("inference.networking.k8s.io", ("inferencepools",), (*READ, *WRITE)),
        rule("", ("pods",), ("list", "watch", "create", "patch", "delete")),
        rule("", ("events",), ("create",)),
    ]


def build_lease_rules() -> list[dict[str, Any]]:
    """The rules of its Role in its own namespace. A create names no object, so no rule can name it."""
    lease = rule("coordination.k8s.io", ("leases",), ("get", "update"))
    return [
        {**lease, "resourceNames": [LEASE_NAME]},
        rule("coordination.k8s.io", ("leases",), ("create",)),
    ]
