"""The ConfigMap in which the planner's memory of one service outlives the operator."""

from __future__ import annotations

from typing import Final

from octavo_operator.api import names
from octavo_operator.desired.metadata import Manifest, Owner, build_metadata

MEMORY_KEY: Final = "memory.json"


def build_scaling_memory(owner: Owner, text: str) -> Manifest:
    name = names.scaling_memory_name(owner.name)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": build_metadata(owner, name, names.service_labels(owner.name)),
        "data": {MEMORY_KEY: text},
    }
