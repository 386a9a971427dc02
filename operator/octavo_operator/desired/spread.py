"""Where the pods of one revision go by default: apart from each other, as far as there is room.

Soft, so that a cluster of one node or of one zone takes them all. The user's own constraints, in
`spec.template`, replace these.
"""

from __future__ import annotations

from typing import Any, Final

TOPOLOGY_KEYS: Final = ("kubernetes.io/hostname", "topology.kubernetes.io/zone")


def build_spread(selector: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(selector)},
        }
        for key in TOPOLOGY_KEYS
    ]
