"""What was observed, as frozen values: the parts of children's bodies that decisions read.

Parsing is forgiving: a child is somebody else's object and any field may be missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from octavo_operator.api import names

REASON_PATTERN: Final = "[A-Z][A-Za-z0-9]{0,63}"
"""One CamelCase word; any image may run, and it may write anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentView:
    """One revision's Deployment."""

    revision: str
    wanted: int
    """spec.replicas"""
    existing: int
    settled: bool
    """Its controller has seen how many are wanted: no pod goes any more because fewer were wanted before."""
    deadline_exceeded: bool
    """Its controller saw no progress within progressDeadlineSeconds."""
    failure: str
    """Why its controller cannot make pods (quota, admission), or empty."""
    template: Mapping[str, Any] = field(default_factory=dict)
    """What its pods run, as the API server stores it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerView:
    """One container's last known state, in the words of the kubelet."""

    name: str
    waiting_reason: str
    waiting_message: str
    terminated_reason: str
    exit_code: int | None
    termination_message: str
    running: bool = False
    image_id: str = ""
    """The kubelet's name for the image that it runs, with a digest; empty before it was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """One engine pod."""

    name: str
    revision: str
    address: str
    ready: bool
    created_at: float
    """Seconds since the epoch."""
    ready_at: float | None
    """When it became ready, or was last again; None while it is not."""
    deletion_cost: str
    """As its annotation says, or empty: which pods a ReplicaSet gives up first."""
    terminating: bool
    phase: str
    unschedulable: str
    """The scheduler's words, or empty."""
    unschedulable_at: float | None = None
    """Since when it finds no node, in seconds since the epoch."""
    containers: tuple[ContainerView, ...]
    """Init containers first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """That some object is there: a budget, a policy, a route."""

    kind: str
    name: str
    revision: str
    """The one that it belongs to, or empty."""


def parse_placed(kind: str, body: Mapping[str, Any]) -> Placed:
    metadata = body["metadata"]
    revision = metadata.get("labels", {}).get(names.LABEL_REVISION, "")
    return Placed(kind=kind, name=metadata["name"], revision=revision)


def parse_deployment(body: Mapping[str, Any]) -> DeploymentView:
    """The revision is read from the selector: nobody can edit that."""
    spec, status = body.get("spec", {}), body.get("status", {})
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    progressing = conditions.get("Progressing", {})
    failure = conditions.get("ReplicaFailure", {})
    return DeploymentView(
        revision=spec.get("selector", {}).get("matchLabels", {}).get(names.LABEL_REVISION, ""),
        wanted=spec.get("replicas", 1),
        existing=status.get("replicas", 0),
        settled=status.get("observedGeneration", 0) >= body.get("metadata", {}).get("generation", 0),
        deadline_exceeded=progressing.get("reason") == "ProgressDeadlineExceeded",
        failure=failure.get("message", "") if failure.get("status") == "True" else "",
        template=spec.get("template", {}),
    )


def parse_pod(body: Mapping[str, Any]) -> PodView:
    metadata, status = body["metadata"], body.get("status", {})
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    scheduled = conditions.get("PodScheduled", {})
    unschedulable = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    ready = conditions.get("Ready", {})
    is_ready = ready.get("status") == "True"
    return PodView(
        name=metadata["name"],
        revision=metadata.get("labels", {}).get(names.LABEL_REVISION, ""),
        address=status.get("podIP", ""),
        ready=is_ready,
        created_at=parse_time(metadata.get("creationTimestamp")) or 0.0,
        ready_at=parse_time(ready.get("lastTransitionTime")) if is_ready else None,
        deletion_cost=metadata.get("annotations", {}).get(names.ANNOTATION_DELETION_COST, ""),
        terminating="deletionTimestamp" in metadata,
        phase=status.get("phase", "Pending"),
        unschedulable=scheduled.get("message", "no node fits") if unschedulable else "",
        unschedulable_at=parse_time(scheduled.get("lastTransitionTime")) if unschedulable else None,
        containers=tuple(
            parse_container(one)
            for kind in ("initContainerStatuses", "containerStatuses")
            for one in status.get(kind, ())
        ),
    )


def parse_container(status: Mapping[str, Any]) -> ContainerView:
    """A container that waits for its next try is described by how its last one ended."""
    state, last = status.get("state", {}), status.get("lastState", {})
    waiting = state.get("waiting", {})
    ended = state.get("terminated") or last.get("terminated") or {}
    return ContainerView(
        name=status.get("name", ""),
        waiting_reason=waiting.get("reason", ""),
        waiting_message=waiting.get("message", ""),
        terminated_reason=ended.get("reason", ""),
        exit_code=ended.get("exitCode"),
        termination_message=ended.get("message", ""),
        running="running" in state,
        image_id=status.get("imageID", ""),
    )


def parse_time(text: object) -> float | None:
    """
    >>> parse_time("1970-01-01T00:01:00Z"), parse_time(None)
    (60.0, None)
    """
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


def pods_of(pods: Iterable[PodView], revision: str | None) -> tuple[PodView, ...]:
    """The pods of one revision that are there to stay."""
    return tuple(pod for pod in pods if pod.revision == revision and not pod.terminating)


def count_ready(pods: Iterable[PodView], revision: str | None) -> int:
    """From the pods themselves: a Deployment's status tells of them a moment later, of fewer or of more."""
    return sum(pod.ready for pod in pods_of(pods, revision))


def parse_termination_message(text: str) -> tuple[str, str] | None:
    """Reason and message that our own containers leave behind as JSON; None for anything else."""
    try:
        words = json.loads(text)
        reason, message = words["reason"], words["message"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not isinstance(reason, str) or re.fullmatch(REASON_PATTERN, reason) is None:
        return None
    return reason, str(message)
