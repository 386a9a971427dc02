"""The HTTPRoute: sends a gateway's requests to revisions by exact shares.

A share goes to a revision's own Service, or to its InferencePool where the user names an endpoint picker.
The route says nothing of timeouts: answers are streamed for minutes, and Gateway API's default is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from octavo_operator.api import names
from octavo_operator.api.spec import Routing
from octavo_operator.desired.inference_pool import POOL_GROUP, POOL_KIND
from octavo_operator.desired.metadata import Manifest, Owner, build_metadata

ROUTE_GROUP: Final = "gateway.networking.k8s.io"
ROUTE_KIND: Final = "HTTPRoute"


def build_http_route(owner: Owner, routing: Routing, weights: Mapping[str, int]) -> Manifest:
    """Weights are percentages by revision; one without a share is left out."""
    route = routing.http_route
    assert route is not None, "a route is built only where spec.routing.httpRoute is set"
    shares = {revision: weight for revision, weight in sorted(weights.items()) if weight > 0}
    assert shares, "a route without a backend would answer 500"
    return {
        "apiVersion": f"{ROUTE_GROUP}/v1",
        "kind": ROUTE_KIND,
        "metadata": build_metadata(owner, owner.name, names.service_labels(owner.name)),
        "spec": {
            "parentRefs": [
                parent.model_dump(mode="json", by_alias=True, exclude_defaults=True)
                for parent in route.parent_refs
            ],
            **({"hostnames": list(route.hostnames)} if route.hostnames else {}),
            "rules": [
                {
                    "backendRefs": [
                        {**build_backend(owner, routing, revision), "weight": weight}
                        for revision, weight in shares.items()
                    ]
                }
            ],
        },
    }


def build_backend(owner: Owner, routing: Routing, revision: str) -> dict[str, Any]:
    name = names.revision_name(owner.name, revision)
    if routing.inference_pool is not None:
        return {"group": POOL_GROUP, "kind": POOL_KIND, "name": name}
    return {"group": "", "kind": "Service", "name": name, "port": routing.port}
