"""`spec.template`: what a user may lay over the pods that the operator renders."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from octavo_operator.api.spec.base import ApiModel

ShortText = Annotated[str, Field(max_length=256)]
LongText = Annotated[str, Field(max_length=4096)]


class OverlayMetadata(ApiModel):
    """Labels and annotations of the pods."""

    labels: dict[str, ShortText] = Field(
        default_factory=dict, max_length=32, description="Further labels of the pods."
    )
    annotations: dict[str, LongText] = Field(
        default_factory=dict, max_length=32, description="Further annotations of the pods."
    )


class PodOverlay(ApiModel):
    """Laid over the rendered pods; only what the operator does not decide itself is taken."""

    metadata: OverlayMetadata = Field(
        default_factory=OverlayMetadata, description="Labels and annotations of the pods."
    )
    spec: dict[str, Any] = Field(
        default_factory=dict,
        description="Fields of a pod's spec: affinity, imagePullSecrets, nodeSelector, priorityClassName, "
        "runtimeClassName, schedulerName, tolerations and topologySpreadConstraints; others are refused.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
