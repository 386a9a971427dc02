"""What has become of a resolver pod: a report, a failure, or nothing yet.

Such a pod looks up what the operator has no right to see: repositories behind a token, volumes, images.
It runs once and leaves one termination message behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from octavo.model_report import ModelReport, decode_model_report
from octavo_operator.api import names
from octavo_operator.decide.failures import (
    CLAIM_MISSING,
    IMAGE_REASONS,
    PASSING,
    STARTING_REASONS,
    missing_claim,
)
from octavo_operator.decide.observed import ContainerView, PodView, parse_pod, parse_termination_message
from octavo_operator.decide.target import Refusal

RESOLVING: Final = "Resolving"
RESOLVER_FAILED: Final = "ResolverFailed"
RESOLVER_TIMEOUT: Final = "ResolverTimeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolverView:
    """One resolver pod."""

    question: str
    """Which lookup it was started for."""
    owner_uid: str
    ended_reason: str
    """Why it ended as a whole, in the words of the kubelet: `DeadlineExceeded`, `Evicted`; or empty."""
    pod: PodView


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """What a resolver pod has to say."""

    report: ModelReport | None = None
    refusal: Refusal | None = None
    ended: bool = True
    """The pod has said what it had to say and can go."""

    def __post_init__(self) -> None:
        assert (self.report is None) != (self.refusal is None), "a lookup has a report or a refusal"


def is_resolver(body: Mapping[str, Any]) -> bool:
    return names.LABEL_QUESTION in body["metadata"].get("labels", {})


def parse_resolver(body: Mapping[str, Any]) -> ResolverView:
    metadata = body["metadata"]
    owners = metadata.get("ownerReferences", ())
    return ResolverView(
        question=metadata["labels"][names.LABEL_QUESTION],
        owner_uid=next((str(one["uid"]) for one in owners if one.get("controller")), ""),
        ended_reason=body.get("status", {}).get("reason", ""),
        pod=parse_pod(body),
    )


def read_lookup(view: ResolverView, what: str) -> Lookup:
    """
    | pod                             | answer                                 | the pod can go |
    |---------------------------------|----------------------------------------|----------------|
    | succeeded, with a report        | the report                             | yes            |
    | succeeded, with anything else   | `ResolverFailed`                       | yes            |
    | failed, with a reason           | that reason                            | yes            |
    | failed at its deadline          | `ResolverTimeout`                      | yes            |
    | failed otherwise                | `ResolverFailed`                       | yes            |
    | no node takes it                | `ClaimMissing`, `Unschedulable`        | no             |
    | its image or container is late  | `ImagePullFailed`, the kubelet's own   | no             |
    | on its way                      | `Resolving`                            | no             |
    """
    pod = view.pod
    container = next((one for one in pod.containers if one.name == names.CONTAINER_RESOLVE), None)
    if pod.phase == "Succeeded":
        return _read_success(pod, container, what)
    if pod.phase == "Failed":
        return Lookup(refusal=_read_failure(view, container, what))
    return Lookup(refusal=_read_wait(pod, container, what), ended=False)


def _read_success(pod: PodView, container: ContainerView | None, what: str) -> Lookup:
    report = decode_model_report(container.termination_message) if container is not None else None
    if report is not None:
        return Lookup(report=report)
    message = f"{what}: pod {pod.name} left no report behind; is its image an Octavo engine of this version?"
    return Lookup(refusal=Refusal(reason=RESOLVER_FAILED, message=message, at_hub=True))


def _read_failure(view: ResolverView, container: ContainerView | None, what: str) -> Refusal:
    words = parse_termination_message(container.termination_message) if container is not None else None
    if words is not None:
        reason, message = words
        return Refusal(reason=reason, message=message, lasting=reason not in PASSING, at_hub=True)
    if view.ended_reason == "DeadlineExceeded":
        message = (
            f"{what}: pod {view.pod.name} did not finish in time; `kubectl describe pod` of its next try "
            "shows what it waits for, such as a volume that cannot be attached"
        )
        return Refusal(reason=RESOLVER_TIMEOUT, message=message, lasting=False, at_hub=True)
    said = view.ended_reason
    if container is not None:
        said = f"exit code {container.exit_code} {container.terminated_reason}".strip()
    message = f"{what}: pod {view.pod.name} failed ({said or 'without a word'})"
    return Refusal(reason=RESOLVER_FAILED, message=message, lasting=False, at_hub=True)


def _read_wait(pod: PodView, container: ContainerView | None, what: str) -> Refusal:
    if pod.unschedulable:
        return _read_unschedulable(pod, what)
    waiting = container.waiting_reason if container is not None else ""
    if waiting not in STARTING_REASONS:
        assert container is not None
        reason = "ImagePullFailed" if waiting in IMAGE_REASONS else waiting
        message = f"{what}: pod {pod.name} cannot start: {container.waiting_message or waiting}"
        return Refusal(reason=reason, message=message, lasting=False)
    message = f"{what} is being looked up by pod {pod.name}"
    return Refusal(reason=RESOLVING, message=message, lasting=False, waits=True)


def _read_unschedulable(pod: PodView, what: str) -> Refusal:
    claim = missing_claim(pod.unschedulable)
    if claim:
        message = f"{what}: there is no PersistentVolumeClaim {claim} in this namespace"
        return Refusal(reason=CLAIM_MISSING, message=message, lasting=False)
    message = f"{what}: no node takes pod {pod.name}: {pod.unschedulable}"
    return Refusal(reason="Unschedulable", message=message, lasting=False)
