"""kstatus: what generic tools (Flux, kpt, `kubectl wait`-like programs) make of any object.

The rules of sigs.k8s.io/cli-utils, pkg/kstatus, for kinds that it does not know: deletion, generation, then
the conditions Reconciling and Stalled, then Ready; an object without any of these counts as Current.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

KStatus = Literal["Terminating", "InProgress", "Failed", "Current"]


def kstatus(body: Mapping[str, Any]) -> KStatus:
    metadata, status = body["metadata"], body.get("status", {})
    if "deletionTimestamp" in metadata:
        return "Terminating"
    observed = status.get("observedGeneration")
    if observed is not None and observed != metadata.get("generation"):
        return "InProgress"
    conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
    if conditions.get("Reconciling") == "True":
        return "InProgress"
    if conditions.get("Stalled") == "True":
        return "Failed"
    return "Current" if conditions.get("Ready", "True") == "True" else "InProgress"
