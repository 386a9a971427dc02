"""Services: the one that clients use, whose selector says which revision serves, and one for a revision.

A revision's own Service is what a route sends its share to, and where a candidate answers before it
gets any traffic.
"""

from __future__ import annotations

from typing import Final

from octavo_operator.api import names
from octavo_operator.desired.metadata import Manifest, Owner, build_metadata

PORT_NAME: Final = "http"


def build_service(owner: Owner, *, port: int, serving: str) -> Manifest:
    metadata = build_metadata(owner, owner.name, names.service_labels(owner.name))
    return _build_service(owner, metadata, port=port, selected=serving)


def build_revision_service(owner: Owner, revision: str, *, port: int) -> Manifest:
    name = names.revision_name(owner.name, revision)
    metadata = build_metadata(owner, name, names.revision_labels(owner.name, revision))
    return _build_service(owner, metadata, port=port, selected=revision)


def _build_service(owner: Owner, metadata: Manifest, *, port: int, selected: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": "ClusterIP",
            "selector": names.pod_selector(owner.name, selected),
            "ports": [{"name": PORT_NAME, "port": port, "targetPort": PORT_NAME, "protocol": "TCP"}],
        },
    }


def service_url(owner: Owner, *, port: int) -> str:
    return f"http://{owner.name}.{owner.namespace}.svc:{port}"
