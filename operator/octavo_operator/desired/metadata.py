"""What every child has in common: identity, labels, and the owner whose deletion deletes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from octavo_operator.api import names

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The InferenceService that a child belongs to."""

    namespace: str
    name: str
    uid: str


def build_metadata(owner: Owner, name: str, labels: dict[str, str]) -> Manifest:
    return {
        "name": name,
        "namespace": owner.namespace,
        "labels": dict(labels),
        "ownerReferences": [build_owner_reference(owner)],
    }


def build_owner_reference(owner: Owner) -> Manifest:
    """Controlled, but never in the way of the owner's deletion: a namespace can always be deleted."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
