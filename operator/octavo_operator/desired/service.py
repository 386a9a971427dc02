"""The Services: one that clients use, and one for a revision that is to be reached by itself.

The selector of the first says whose pods answer: those of the revision that serves, those of all while two
share the requests, or nobody's before any was fit. Which one serves is in an annotation too.
"""

from __future__ import annotations

from typing import Any, Final

from octavo_operator.api import names
from octavo_operator.desired.metadata import Manifest, Owner, build_metadata

PORT_NAME: Final = "http"
NOBODY: Final = "none"
"""As a revision: no hash is spelled like this, so that no pod is selected."""


def build_service(owner: Owner, *, port: int, serving: str | None, shared: bool = False) -> Manifest:
    metadata = build_metadata(owner, owner.name, names.service_labels(owner.name))
    if serving is not None:
        metadata["annotations"] = {names.ANNOTATION_SERVING: serving}
    selector = names.pod_selector(owner.name, serving or NOBODY)
    return _build(metadata, port, names.shared_selector(owner.name) if shared else selector)


def build_revision_service(owner: Owner, revision: str, *, port: int) -> Manifest:
    """Where a candidate answers before it gets requests, and what a route divides them by."""
    name, labels = (
        names.revision_name(owner.name, revision),
        names.revision_labels(owner.name, revision),
    )
    return _build(build_metadata(owner, name, labels), port, names.pod_selector(owner.name, revision))


def _build(metadata: Manifest, port: int, selector: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": "ClusterIP",
            "selector": selector,
            "ports": [{"name": PORT_NAME, "port": port, "targetPort": PORT_NAME, "protocol": "TCP"}],
        },
    }


def service_url(owner: Owner, *, port: int) -> str:
    return f"http://{owner.name}.{owner.namespace}.svc:{port}"
