"""Names that the API server, users and other tools see: group, kinds, labels, annotations, child names.

Every child name is a DNS-1035 label of at most 63 characters because `metadata.name` of the resource is
one of at most 40 (the CRD refuses others) and suffixes are at most 19 long.
"""

from __future__ import annotations

import re
from typing import Final

GROUP: Final = "octavo.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "InferenceService"
PLURAL: Final = "inferenceservices"
SINGULAR: Final = "inferenceservice"
SHORT_NAME: Final = "lsvc"
CATEGORY: Final = "octavo"

FIELD_MANAGER: Final = "octavo-operator"
LEASE_NAME: Final = "octavo-operator"
"""In the operator's own namespace: who of several acts."""
CONTAINER_ENGINE: Final = "engine"
CONTAINER_FETCH: Final = "fetch"
CONTAINER_RESOLVE: Final = "resolve"

MAX_NAME_LENGTH: Final = 40
MAX_CHILD_NAME_LENGTH: Final = 63
DNS_1035: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"

LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_SERVICE: Final = f"{GROUP}/service"
LABEL_REVISION: Final = f"{GROUP}/revision"
LABEL_QUESTION: Final = f"{GROUP}/question"
"""On resolver pods alone: which lookup they were started for."""
MANAGED_BY: Final = "octavo"
ENGINE_NAME: Final = "octavo-engine"

ANNOTATION_PROVEN_AT: Final = f"{GROUP}/proven-at"
"""On a ControllerRevision: when its gates first let it serve."""
ANNOTATION_EVIDENCE: Final = f"{GROUP}/evidence"
"""On a ControllerRevision: what its gates saw."""
ANNOTATION_IMAGE_DIGEST: Final = f"{GROUP}/image-digest"
"""On a ControllerRevision: the digest of the engine image that its pods really ran."""
ANNOTATION_ENGINE_BLOCKS: Final = f"{GROUP}/engine-blocks"
"""On a ControllerRevision: KV blocks that its engine measured room for."""
ANNOTATION_ANSWERS: Final = f"{GROUP}/probe-answers"
"""On a ControllerRevision: its answers to the probes of the quality gate, from when it served."""
ANNOTATION_ROLLOUT: Final = f"{GROUP}/rollout"
"""On a ControllerRevision: how far its rollout has come, or why it was given up."""
ANNOTATION_SERVING: Final = f"{GROUP}/serving"
"""On the Service: the revision that serves, also while two share the requests."""

ANNOTATION_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""On a pod, Kubernetes' own: a ReplicaSet gives up the pods with the least cost first."""

SHORT_REVISION_LENGTH: Final = 12
"""Hexadecimal digits of a commit that a person is shown."""


def revision_name(service: str, revision: str) -> str:
    """Name of a revision's ControllerRevision and Deployment.

    >>> revision_name("smollm2", "0123456789")
    'smollm2-0123456789'
    """
    return checked_name(f"{service}-{revision}")


def pins_name(service: str) -> str:
    """Name of the ConfigMap that remembers which commit each line of words was resolved to."""
    return checked_name(f"{service}-pins")


def resolver_name(service: str, question: str) -> str:
    """Name of the pod that looks up what the operator may not see."""
    return checked_name(f"{service}-resolve-{question}")


def resolver_policy_name(service: str) -> str:
    """Name of the NetworkPolicy of those pods.

    >>> resolver_policy_name("smollm2")
    'smollm2-resolve'
    """
    return checked_name(f"{service}-resolve")


def scaling_memory_name(service: str) -> str:
    """Name of the ConfigMap in which the planner's memory outlives the operator."""
    return checked_name(f"{service}-scaling")


def checked_name(name: str) -> str:
    assert len(name) <= MAX_CHILD_NAME_LENGTH, f"child name {name!r} is longer than {MAX_CHILD_NAME_LENGTH}"
    assert re.match(DNS_1035, name), f"child name {name!r} is not a DNS-1035 label"
    return name


def service_labels(service: str) -> dict[str, str]:
    """Labels of every child of one InferenceService."""
    return {LABEL_MANAGED_BY: MANAGED_BY, LABEL_NAME: ENGINE_NAME, LABEL_SERVICE: service}


def revision_labels(service: str, revision: str) -> dict[str, str]:
    """Labels of the children that belong to one revision."""
    return {**service_labels(service), LABEL_REVISION: revision}


def pod_selector(service: str, revision: str) -> dict[str, str]:
    """What selects the pods of one revision; a Deployment's selector can never change, so it is minimal."""
    return {LABEL_SERVICE: service, LABEL_REVISION: revision}


def shared_selector(service: str) -> dict[str, str]:
    """What selects the engines of all revisions, while two of them share the requests."""
    return {LABEL_SERVICE: service, LABEL_NAME: ENGINE_NAME}
