"""The Service that clients use; its selector says which revision serves."""

from __future__ import annotations

from typing import Final

from octavo_operator.api import names
from octavo_operator.desired.metadata import Manifest, Owner, build_metadata

PORT_NAME: Final = "http"


def build_service(owner: Owner, *, port: int, serving: str) -> Manifest:
    labels = names.service_labels(owner.name)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": build_metadata(owner, owner.name, labels),
        "spec": {
            "type": "ClusterIP",
            "selector": names.pod_selector(owner.name, serving),
            "ports": [{"name": PORT_NAME, "port": port, "targetPort": PORT_NAME, "protocol": "TCP"}],
        },
    }


def service_url(owner: Owner, *, port: int) -> str:
    return f"http://{owner.name}.{owner.namespace}.svc:{port}"
