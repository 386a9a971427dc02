"""The ControllerRevision: history that the API server keeps for us, immutable by its own rules."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from octavo_operator.api import names
from octavo_operator.desired.learned import NOTHING, Learned, render_annotations
from octavo_operator.desired.metadata import Manifest, Owner, build_metadata


def build_controller_revision(
    owner: Owner, data: Mapping[str, Any], *, number: int, learned: Learned, before: Learned = NOTHING
) -> Manifest:
    """What is learned later is in annotations: `data` never changes.

    What is forgotten since `before` is set to nothing: only fields that are set are compared and applied.
    """
    name = names.revision_name(owner.name, data["hash"])
    metadata = build_metadata(owner, name, names.revision_labels(owner.name, data["hash"]))
    forgotten = dict.fromkeys(render_annotations(before), "")
    annotations = {**forgotten, **render_annotations(learned)}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata,
        "revision": number,
        "data": deepcopy(dict(data)),
    }
