"""InferencePools of the Gateway API Inference Extension: one for each revision that may get a share.

An endpoint picker chooses a pod of the pool by the engines' own metrics, which carry vLLM's names. A pool
for each revision, and the shares on the HTTPRoute: the picker never chooses between revisions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from octavo_operator.api import names
from octavo_operator.api.spec import Routing
from octavo_operator.desired.metadata import Manifest, Owner, build_metadata

POOL_GROUP: Final = "inference.networking.k8s.io"
POOL_KIND: Final = "InferencePool"


def build_inference_pools(owner: Owner, routing: Routing, revisions: Iterable[str]) -> tuple[Manifest, ...]:
    return tuple(build_inference_pool(owner, routing, revision) for revision in sorted(revisions))


def build_inference_pool(owner: Owner, routing: Routing, revision: str) -> Manifest:
    pool = routing.inference_pool
    assert pool is not None, "a pool is built only where spec.routing.inferencePool is set"
    name = names.revision_name(owner.name, revision)
    picker = pool.endpoint_picker_ref
    return {
        "apiVersion": f"{POOL_GROUP}/v1",
        "kind": POOL_KIND,
        "metadata": build_metadata(owner, name, names.revision_labels(owner.name, revision)),
        "spec": {
            "selector": {"matchLabels": names.pod_selector(owner.name, revision)},
            "targetPorts": [{"number": routing.port}],
            "endpointPickerRef": {
                "group": "",
                "kind": "Service",
                "name": picker.name,
                "port": {"number": picker.port},
            },
        },
    }
