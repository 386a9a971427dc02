"""Lays `spec.template` over a rendered pod template: metadata is added to, fields of the spec are set.

Which fields may be set is checked where the spec is parsed (`api.spec.overlay`).
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from octavo_operator.api.spec import PodOverlay

SPREAD: Final = "topologySpreadConstraints"


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
