"""The ControllerRevision: history that the API server keeps for us, immutable by its own rules."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from octavo_operator.api import names
from octavo_operator.desired.metadata import Manifest, Owner, build_metadata


def build_controller_revision(
    owner: Owner, data: Mapping[str, Any], *, number: int, proven_at: str | None
) -> Manifest:
    """What is learned later (that the revision was ready) is an annotation: `data` never changes."""
    name = names.revision_name(owner.name, data["hash"])
    metadata = build_metadata(owner, name, names.revision_labels(owner.name, data["hash"]))
    if proven_at is not None:
        metadata["annotations"] = {names.ANNOTATION_PROVEN_AT: proven_at}
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata,
        "revision": number,
        "data": deepcopy(dict(data)),
    }
