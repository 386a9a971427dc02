"""The kinds that the operator reads and writes, and their paths at the API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from octavo_operator.api import names
from octavo_operator.desired.http_route import ROUTE_GROUP, ROUTE_KIND
from octavo_operator.desired.inference_pool import POOL_GROUP, POOL_KIND


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of namespaced object."""

    name: str
    group: str
    version: str
    plural: str

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """Without a namespace: objects of all of them."""
        root = f"/apis/{self.group}" if self.group else "/api"
        place = f"namespaces/{namespace}" if namespace else ""
        parts = (root, self.version, place, self.plural, name, subresource)
        return "/".join(part for part in parts if part)


SERVICES: Final = Kind(name="Service", group="", version="v1", plural="services")
CONFIG_MAPS: Final = Kind(name="ConfigMap", group="", version="v1", plural="configmaps")
PODS: Final = Kind(name="Pod", group="", version="v1", plural="pods")
EVENTS: Final = Kind(name="Event", group="", version="v1", plural="events")
DEPLOYMENTS: Final = Kind(name="Deployment", group="apps", version="v1", plural="deployments")
REVISIONS: Final = Kind(name="ControllerRevision", group="apps", version="v1", plural="controllerrevisions")
DISRUPTION_BUDGETS: Final = Kind(
    name="PodDisruptionBudget", group="policy", version="v1", plural="poddisruptionbudgets"
)
NETWORK_POLICIES: Final = Kind(
    name="NetworkPolicy", group="networking.k8s.io", version="v1", plural="networkpolicies"
)
HTTP_ROUTES: Final = Kind(name=ROUTE_KIND, group=ROUTE_GROUP, version="v1", plural="httproutes")
INFERENCE_POOLS: Final = Kind(name=POOL_KIND, group=POOL_GROUP, version="v1", plural="inferencepools")
LEASES: Final = Kind(name="Lease", group="coordination.k8s.io", version="v1", plural="leases")
INFERENCE_SERVICES: Final = Kind(
    name=names.KIND, group=names.GROUP, version=names.VERSION, plural=names.PLURAL
)

CHILD_KINDS: Final = (
    DEPLOYMENTS,
    PODS,
    REVISIONS,
    CONFIG_MAPS,
    SERVICES,
    DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
)
"""Watched, and only those that carry our label."""
OPTIONAL_KINDS: Final = (HTTP_ROUTES, INFERENCE_POOLS)
"""Defined by other projects: watched likewise where the cluster has them."""
SURROUNDING_KINDS: Final = (SERVICES, DISRUPTION_BUDGETS, NETWORK_POLICIES, *OPTIONAL_KINDS)
"""Of which an object comes and goes with a revision, or with a field of spec."""
KINDS_BY_NAME: Final = {kind.name: kind for kind in (*CHILD_KINDS, *OPTIONAL_KINDS, LEASES)}
