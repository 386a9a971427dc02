"""What surrounds the Deployments of a service: policies, budgets, revisions' own Services, a route, pools.

| child               | exists for                              | goes                            |
|---------------------|-----------------------------------------|---------------------------------|
| NetworkPolicy       | each revision that has a Deployment     | after the revision's last pod   |
|                     | all resolver pods                       | with the need of them           |
| PodDisruptionBudget | each revision that gets traffic         | at once                         |
| revision's Service  | each that the rollout or a route names  | likewise; at once without route |
| InferencePool       | each that gets traffic, where asked for | likewise; or with the field     |
| HTTPRoute           | the service, where asked for            | with the field                  |

A gateway learns of new shares a moment later than we write them, so what a route has pointed at stays
until the revision's last pod is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from octavo_operator.api.spec import Routing
from octavo_operator.decide.observed import Placed
from octavo_operator.decide.target import Refusal
from octavo_operator.decide.world import World
from octavo_operator.desired.disruption import build_disruption_budget
from octavo_operator.desired.http_route import ROUTE_GROUP, ROUTE_KIND, build_http_route
from octavo_operator.desired.inference_pool import POOL_GROUP, POOL_KIND, build_inference_pools
from octavo_operator.desired.metadata import Manifest
from octavo_operator.desired.network_policy import build_network_policy, build_resolver_policy
from octavo_operator.desired.resolver_pod import needs_resolver
from octavo_operator.desired.service import build_revision_service

INSTALL: Final = {
    ROUTE_KIND: (
        "spec.routing.httpRoute",
        f"{ROUTE_GROUP}/v1 HTTPRoute",
        "Install Gateway API 1.0 or newer",
    ),
    POOL_KIND: (
        "spec.routing.inferencePool",
        f"{POOL_GROUP}/v1 InferencePool",
        "Install the Gateway API Inference Extension 1.0 or newer",
    ),
}
"""By kind: the field that asks for it, what it is, and how a cluster gets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What a rollout says of traffic."""

    weights: Mapping[str, int]
    """Percent of the traffic by revision; empty while nothing serves."""
    services: Collection[str]
    """Revisions that need a Service of their own, route or not."""


def build_policies(world: World, templates: Mapping[str, Mapping[str, Any]]) -> list[Manifest]:
    """Before the pods that they are about; whoever starts a resolver pod sees to the first one's himself."""
    policies = [build_network_policy(world.owner, one, template) for one, template in templates.items()]
    if needs_resolver(world.spec.model):
        policies.append(build_resolver_policy(world.owner, world.spec.model, world.hub_endpoint))
    return policies


def build_surroundings(world: World, sharing: Sharing) -> list[Manifest]:
    """After the Deployments; the route comes last, when all that it points at is there."""
    owner, routing = world.owner, world.spec.routing
    serving = sorted(one for one, weight in sharing.weights.items() if weight > 0)
    manifests = [build_disruption_budget(owner, one) for one in serving]
    manifests += [
        build_revision_service(owner, one, port=routing.port) for one in services_wanted(world, sharing)
    ]
    if find_missing_kind(world) is not None:
        return manifests
    if routing.inference_pool is not None:
        manifests += build_inference_pools(owner, routing, serving)
    if routing.http_route is not None and serving:
        manifests.append(build_http_route(owner, routing, sharing.weights))
    return manifests


def services_wanted(world: World, sharing: Sharing) -> list[str]:
    routing = world.spec.routing
    routed = routing.http_route is not None and routing.inference_pool is None
    shares = {one for one, weight in sharing.weights.items() if weight > 0} if routed else set()
    return sorted({*sharing.services, *shares})


def wanted_kinds(routing: Routing) -> frozenset[str]:
    """Kinds of other projects that the spec asks for."""
    asked = {ROUTE_KIND: routing.http_route, POOL_KIND: routing.inference_pool}
    return frozenset(kind for kind, value in asked.items() if value is not None)


def find_missing_kind(world: World) -> Refusal | None:
    """A field asks for a kind that this cluster does not have: the pods serve all the same."""
    for kind in sorted(wanted_kinds(world.spec.routing) - world.served_kinds):
        field, what, way_out = INSTALL[kind]
        message = f"{field}: this cluster does not serve {what}. {way_out}, or remove the field"
        return Refusal(reason=f"{kind}NotServed", message=message)
    return None


def find_stale(world: World, wanted: Collection[Manifest]) -> list[Placed]:
    """Children that are there and should no longer be, in the order in which they are to go."""
    kept = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in wanted}
    alive = {*world.deployments, *(pod.revision for pod in world.pods)}
    stale = [
        one
        for one in world.surroundings
        if (one.kind, one.name) not in kept and _may_go(world, one, is_alive=one.revision in alive)
    ]
    return sorted(stale, key=lambda one: one.kind != ROUTE_KIND)


def _may_go(world: World, one: Placed, *, is_alive: bool) -> bool:
    routing = world.spec.routing
    if one.kind == "Service":
        return one.name != world.owner.name and (routing.http_route is None or not is_alive)
    if one.kind == ROUTE_KIND:
        return routing.http_route is None
    if one.kind == POOL_KIND:
        return routing.inference_pool is None or not is_alive
    return one.kind == "PodDisruptionBudget" or not is_alive
