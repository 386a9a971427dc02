"""The PodDisruptionBudget of one revision: how many of its ready pods a node's drain may take at once.

A tenth, rounded up by the API server: one of up to ten replicas, two of up to twenty. So a service with
a single replica can always be drained (it is away until its pod has started elsewhere; two replicas keep
it answering): a budget of `minAvailable: 1` would hold up every node upgrade for ever instead.

A budget counts one revision only. Over several, the pods of a candidate that never becomes ready would
use it up, and nothing that serves could be drained while a failed rollout waits for its next edit.
Pods that are not ready may always be evicted: nobody is served by them.
"""

from __future__ import annotations

from typing import Final

from octavo_operator.api import names
from octavo_operator.desired.metadata import Manifest, Owner, build_metadata

MAX_UNAVAILABLE: Final = "10%"


def build_disruption_budget(owner: Owner, revision: str) -> Manifest:
    name = names.revision_name(owner.name, revision)
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": build_metadata(owner, name, names.revision_labels(owner.name, revision)),
        "spec": {
            "maxUnavailable": MAX_UNAVAILABLE,
            "selector": {"matchLabels": names.pod_selector(owner.name, revision)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
