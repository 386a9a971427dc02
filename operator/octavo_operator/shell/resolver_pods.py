"""Starts resolver pods. What they say comes by the watch; one that has said all is removed like any child."""

from __future__ import annotations

from typing import Final

from octavo.model_source import ImageSource, parse_model_uri
from octavo_operator.decide.resolving import RESOLVING
from octavo_operator.decide.target import Refusal
from octavo_operator.desired.metadata import Owner
from octavo_operator.desired.network_policy import build_resolver_policy
from octavo_operator.desired.resolver_pod import Question, build_resolver_pod
from octavo_operator.shell.cache import Cache
from octavo_operator.shell.kinds import NETWORK_POLICIES, PODS
from octavo_operator.shell.kube import ApiRefused, Kube
from octavo_operator.shell.meters import Meters

CONFLICT: Final = 409
NO_VOLUME_TYPE: Final = "must specify a volume type"
"""What an API server says of a volume whose only source is a field that it dropped."""


class ResolverPods:
    """Bare pods: nothing would restart or replace them, nor should it."""

    def __init__(self, *, kube: Kube, cache: Cache, meters: Meters) -> None:
        self._kube = kube
        self._cache = cache
        self._meters = meters

    async def start(self, owner: Owner, question: Question, what: str) -> Refusal:
        """What is to be said while there is no answer."""
        manifest = build_resolver_pod(owner, question)
        try:
            await self._fence(owner, question)
            self._meters.writes.labels(PODS.name).inc()
            stored = await self._kube.create(manifest)
        except ApiRefused as refused:
            if refused.in_vain or (refused.is_passing and refused.status != CONFLICT):
                raise
            return refuse_start(refused, question, what)
        self._cache.put(PODS, stored)
        message = f"{what} is being looked up by pod {manifest['metadata']['name']}"
        return Refusal(reason=RESOLVING, message=message, lasting=False, waits=True)

    async def _fence(self, owner: Owner, question: Question) -> None:
        """There before the first pod; from then on a pass keeps it as it should be, or says whose it is."""
        policy = build_resolver_policy(owner, question.model, question.hub_endpoint)
        name = policy["metadata"]["name"]
        if self._cache.find(NETWORK_POLICIES, owner.namespace, name) is not None:
            return
        self._meters.writes.labels(NETWORK_POLICIES.name).inc()
        try:
            self._cache.put(NETWORK_POLICIES, await self._kube.create(policy))
        except ApiRefused as refused:
            if refused.status != CONFLICT:
                raise


def refuse_start(refused: ApiRefused, question: Question, what: str) -> Refusal:
    """
    | the API server says               | reason                   | mends itself |
    |-----------------------------------|--------------------------|--------------|
    | there is one already              | `Resolving`              | yes: the watch tells of it |
    | it knows no image volumes         | `ImageVolumeUnsupported` | no           |
    | the pod is invalid                | `PodsRefused`            | no: spec.template must change |
    | a quota, a policy, …              | `PodsRefused`            | yes          |
    """
    if refused.status == CONFLICT:
        message = f"{what}: the pod of an earlier lookup is still there"
        return Refusal(reason=RESOLVING, message=message, lasting=False, waits=True, at_hub=True)
    if NO_VOLUME_TYPE in str(refused) and isinstance(parse_model_uri(question.model.uri), ImageSource):
        message = (
            f"{what}: this cluster has no image volumes; they need the feature gate ImageVolume on the API "
            "server and the kubelets, and containerd 2.1 or later"
        )
        return Refusal(reason="ImageVolumeUnsupported", message=message, at_hub=True)
    message = f"{what}: the cluster refuses the resolver pod: {refused}"
    return Refusal(reason="PodsRefused", message=message, lasting=refused.is_invalid, at_hub=True)
