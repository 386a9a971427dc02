"""The Lease of the operator that acts. Not a child of any InferenceService: it lies beside the operator."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from octavo_operator.api import names
from octavo_operator.desired.metadata import Manifest


def build_lease(
    namespace: str, holder: str, *, seconds: int, now: datetime, before: Mapping[str, Any] | None
) -> Manifest:
    """Refused by the API server if somebody has written the Lease since `before` was read."""
    stamp = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    known = (before or {}).get("spec") or {}
    stays = known.get("holderIdentity") == holder
    version = {"resourceVersion": before["metadata"]["resourceVersion"]} if before else {}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": names.LEASE_NAME, "namespace": namespace, **version},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "acquireTime": known.get("acquireTime", stamp) if stays else stamp,
            "renewTime": stamp,
            "leaseTransitions": known.get("leaseTransitions", 0) + (0 if stays or not before else 1),
        },
    }
