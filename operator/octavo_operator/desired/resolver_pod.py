"""The pod that looks up what the operator may not see, reports in its termination message, and ends.

It meets the restricted pod security standard, has no service account token, and gets a Secret as a file
by its name: the operator reads neither Secrets nor volumes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

from octavo import engine_contract as contract
from octavo.model_source import HubSource, parse_model_uri
from octavo_operator.api import names
from octavo_operator.api.spec import ModelSource, PodOverlay
from octavo_operator.desired.metadata import Manifest, Owner, build_metadata
from octavo_operator.desired.model_volume import (
    build_source_flags,
    build_source_mounts,
    build_source_volumes,
)
from octavo_operator.desired.overlay import placing_fields
from octavo_operator.desired.pod_template import (
    SCRATCH_PATH,
    SCRATCH_VOLUME,
    build_container_security,
    build_env,
    build_pod_security,
)

HUB_DEADLINE_SECONDS: Final = 300
"""For an image to be pulled and the hub to be asked."""
FILES_DEADLINE_SECONDS: Final = 3600
"""For every byte of a volume or an image to be read: 500 GB at 140 MB/s."""
RESOURCES: Final = {
    "requests": {"cpu": "100m", "memory": "256Mi"},
    "limits": {"cpu": "1", "memory": "512Mi"},
}
QUESTION_LENGTH: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a resolver pod is to look up."""

    model: ModelSource
    revision: str
    """The words, or the commit that they have come to mean."""
    image: str
    hub_endpoint: str
    overlay: PodOverlay | None = None
    """Where its pod may run: one that found no node is started anew when that is edited."""

    @property
    def id(self) -> str:
        """The same question has the same one, over restarts of the operator."""
        secret = self.model.credentials_secret_ref
        parts = (
            self.model.uri,
            self.revision,
            self.model.refresh_token,
            secret.name if secret is not None else "",
            self.image,
            self.hub_endpoint,
            placing_fields(self.overlay),
        )
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:QUESTION_LENGTH]


def needs_resolver(model: ModelSource) -> bool:
    return model.credentials_secret_ref is not None or not isinstance(parse_model_uri(model.uri), HubSource)


def build_resolver_pod(owner: Owner, question: Question) -> Manifest:
    labels = {**names.service_labels(owner.name), names.LABEL_QUESTION: question.id}
    on_hub = isinstance(parse_model_uri(question.model.uri), HubSource)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": build_metadata(owner, names.resolver_name(owner.name, question.id), labels),
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": HUB_DEADLINE_SECONDS if on_hub else FILES_DEADLINE_SECONDS,
            "securityContext": build_pod_security(),
            **placing_fields(question.overlay),
            "containers": [build_resolve_container(question)],
            "volumes": [
                *build_source_volumes(question.model),
                {"name": SCRATCH_VOLUME, "emptyDir": {}},
            ],
        },
    }


def build_resolve_container(question: Question) -> dict[str, Any]:
    env = {"HOME": SCRATCH_PATH, "HF_HOME": f"{SCRATCH_PATH}/hf"}
    if question.hub_endpoint:
        env["HF_ENDPOINT"] = question.hub_endpoint
    return {
        "name": names.CONTAINER_RESOLVE,
        "image": question.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["octavo-engine"],
        "args": build_resolve_args(question),
        "env": build_env(env),
        "resources": {kind: dict(amounts) for kind, amounts in RESOURCES.items()},
        "securityContext": build_container_security(),
        "volumeMounts": [
            *build_source_mounts(question.model),
            {"name": SCRATCH_VOLUME, "mountPath": SCRATCH_PATH},
        ],
        "terminationMessagePath": contract.TERMINATION_LOG,
        "terminationMessagePolicy": "File",
    }


def build_resolve_args(question: Question) -> list[str]:
    return [
        "resolve",
        *(contract.FLAG_FETCH_URI, question.model.uri),
        *(contract.FLAG_FETCH_REVISION, question.revision),
        *build_source_flags(question.model),
        *(contract.FLAG_REPORT, contract.TERMINATION_LOG),
    ]
