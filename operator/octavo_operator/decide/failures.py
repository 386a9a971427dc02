"""Why a revision's pods are not ready: one reason and one message, from what kubelet and scheduler say.

| seen                                            | reason                        | mends itself |
|-------------------------------------------------|-------------------------------|--------------|
| our container's own termination message         | the reason in it              | PASSING      |
| OOMKilled                                       | `OutOfMemory`                 | no           |
| ErrImagePull, ImagePullBackOff, InvalidImageName | `ImagePullFailed`            | yes          |
| another container error before the start        | the kubelet's own             | yes          |
| a container ended otherwise                     | `FetchFailed`, `EngineFailed` | yes          |
| the scheduler found no node                     | `Unschedulable`               | yes          |
| … since a PersistentVolumeClaim is not there    | `ClaimMissing`                | yes          |
| the Deployment cannot make pods                 | `PodsRefused`                 | yes          |
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from octavo import engine_contract as contract
from octavo_operator.api import names
from octavo_operator.decide.observed import (
    ContainerView,
    DeploymentView,
    PodView,
    parse_termination_message,
)

CLAIM_MISSING: Final = "ClaimMissing"
MISSING_CLAIM: Final = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
PASSING: Final = frozenset(
    {
        contract.REASON_HUB_UNAVAILABLE,
        contract.REASON_DISK_FULL,
        contract.REASON_SOURCE_UNREADABLE,
        contract.REASON_NOT_WRITABLE,
    }
)
"""Reasons in a termination message that another try may not meet again."""
IMAGE_REASONS: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
)
STARTING_REASONS: Final = frozenset({"", "ContainerCreating", "PodInitializing", "CrashLoopBackOff"})
"""What a container waits for in the ordinary course, or after a failure that is told by how it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What keeps a revision from being ready."""

    reason: str
    message: str
    exit_code: int | None = None
    lasting: bool = False
    """No later try can succeed with the same words: somebody must change something."""


def find_failure(pods: Iterable[PodView], deployment: DeploymentView | None) -> Failure | None:
    """The failure to tell the user of: the most telling pod's; ready pods have none."""
    found = [failure for pod in pods if not pod.ready for failure in [_pod_failure(pod)] if failure]
    if found:
        return min(found, key=lambda failure: not failure.lasting)
    if deployment is not None and deployment.failure:
        return Failure(reason="PodsRefused", message=f"The cluster refuses the pods: {deployment.failure}")
    return None


def missing_claim(unschedulable: str) -> str:
    """The PersistentVolumeClaim that a pod waits for, in the scheduler's words; empty if it is another thing.

    >>> missing_claim('0/1 nodes are available: persistentvolumeclaim "models" not found.')
    'models'
    """
    found = MISSING_CLAIM.search(unschedulable)
    return found[1] if found is not None else ""


def _pod_failure(pod: PodView) -> Failure | None:
    claim = missing_claim(pod.unschedulable)
    if claim:
        message = f"Pod {pod.name}: there is no PersistentVolumeClaim {claim} in this namespace"
        return Failure(reason=CLAIM_MISSING, message=message)
    if pod.unschedulable:
        return Failure(reason="Unschedulable", message=f"No node takes pod {pod.name}: {pod.unschedulable}")
    failures = (_container_failure(pod.name, container) for container in pod.containers)
    return next((failure for failure in failures if failure is not None), None)


def _container_failure(pod: str, container: ContainerView) -> Failure | None:
    if container.waiting_reason in IMAGE_REASONS:
        said = container.waiting_message or container.waiting_reason
        return Failure(reason="ImagePullFailed", message=f"Pod {pod} cannot get its image: {said}")
    if container.waiting_reason not in STARTING_REASONS:
        said = container.waiting_message or container.waiting_reason
        return Failure(reason=container.waiting_reason, message=f"Pod {pod} cannot start: {said}")
    if container.exit_code in (None, 0):
        return None
    return _exit_failure(pod, container)


def _exit_failure(pod: str, container: ContainerView) -> Failure:
    code = container.exit_code
    if container.terminated_reason == "OOMKilled":
        text = f"Container {container.name} of pod {pod} used more than its memory limit (exit code {code})"
        return Failure(reason="OutOfMemory", message=text, exit_code=code, lasting=True)
    words = parse_termination_message(container.termination_message)
    if words is not None:
        reason, message = words
        return Failure(reason=reason, message=message, exit_code=code, lasting=reason not in PASSING)
    reason = "FetchFailed" if container.name == names.CONTAINER_FETCH else "EngineFailed"
    said = container.termination_message.strip() or container.terminated_reason or "no message"
    message = f"Container {container.name} of pod {pod} ended with exit code {code}: {said}"
    return Failure(reason=reason, message=message, exit_code=code)
