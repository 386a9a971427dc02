"""The Deployment of one revision.

Replicas always travel with the template: a Deployment applied without replicas starts one, and two
appliers would fight over the number.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from octavo_operator.api import names
from octavo_operator.desired.metadata import Manifest, Owner, build_metadata


def build_deployment(
    owner: Owner,
    revision: str,
    template: Mapping[str, Any],
    *,
    replicas: int,
    progress_deadline_seconds: int,
) -> Manifest:
    name = names.revision_name(owner.name, revision)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": build_metadata(owner, name, names.revision_labels(owner.name, revision)),
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 0,
            "progressDeadlineSeconds": progress_deadline_seconds,
            "selector": {"matchLabels": names.pod_selector(owner.name, revision)},
            # The template of a revision never changes, so this only says what a hand edit would meet.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": deepcopy(dict(template)),
        },
    }
