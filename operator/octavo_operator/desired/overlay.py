"""Lays `spec.template` over a rendered pod template: metadata is added to, fields of the spec are set.

Which fields may be set is checked where the spec is parsed (`api.spec.overlay`).
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from octavo_operator.api.spec import PodOverlay

PLACING: Final = frozenset(
    {
        "affinity",
        "imagePullSecrets",
        "nodeSelector",
        "priorityClassName",
        "schedulerName",
        "tolerations",
    }
)
"""Fields that also hold for a pod of the same image that is gone in a minute."""
SPREAD: Final = "topologySpreadConstraints"


def placing_fields(overlay: PodOverlay | None) -> dict[str, Any]:
    """Of a resolver's pod: it must find the image, and may need the same nodes."""
    fields = overlay.spec if overlay is not None else {}
    return {name: deepcopy(value) for name, value in fields.items() if name in PLACING and value}


def apply_overlay(
    template: dict[str, Any], overlay: PodOverlay | None, selector: dict[str, str]
) -> dict[str, Any]:
    """The rendered labels win. A constraint that selects no pods is about the revision's own."""
    if overlay is None:
        return template
    fields = {name: deepcopy(value) for name, value in overlay.spec.items() if value}
    if SPREAD in fields:
        own = {"matchLabels": selector}
        fields[SPREAD] = [{"labelSelector": deepcopy(own), **one} for one in fields[SPREAD]]
    rendered = template["metadata"]
    metadata = {**rendered, "labels": {**overlay.metadata.labels, **rendered["labels"]}}
    annotations = {**overlay.metadata.annotations, **rendered.get("annotations", {})}
    if annotations:
        metadata["annotations"] = annotations
    return {**template, "metadata": metadata, "spec": {**template["spec"], **fields}}
