"""`spec.template`: what a user may lay over the pods that the operator renders.

Only fields that say where a pod runs, and with which rights to pull, are taken: whatever says what it runs
is the operator's, because a revision must be what its record says, restricted and drained. The API server
cannot refuse a field of an open object by name, so the operator does, in words.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, ValidationInfo, field_validator

from octavo.errors import InvalidSpec
from octavo_operator.api import names
from octavo_operator.api.spec.base import ApiModel, cel, shortened, validated_by

ShortText = Annotated[str, Field(max_length=256)]
LongText = Annotated[str, Field(max_length=4096)]

RESERVED_LABELS: Final = (names.LABEL_MANAGED_BY, names.LABEL_NAME)
RESERVED_PREFIX: Final = f"{names.GROUP}/"

OVERLAY_FIELDS: Final[dict[str, type]] = {
    "affinity": dict,
    "imagePullSecrets": list,
    "nodeSelector": dict,
    "priorityClassName": str,
    "runtimeClassName": str,
    "schedulerName": str,
    "tolerations": list,
    "topologySpreadConstraints": list,
}
"""Fields of a pod's spec that are taken, and their types; their insides are the API server's to judge."""
TYPE_WORDS: Final[dict[type, str]] = {dict: "an object", list: "a list of objects", str: "a text"}

WAYS_OUT: Final = {
    "containers": "use spec.engine and spec.resources",
    "initContainers": "the files are fetched by the operator's own container; use spec.model",
    "volumes": "use spec.model.cache for the model's files",
    "terminationGracePeriodSeconds": "use spec.rollout.drainSeconds",
    "serviceAccountName": "engine pods carry no service-account token",
    "automountServiceAccountToken": "engine pods carry no service-account token",
    "securityContext": "the pods meet the restricted pod security standard as they are",
    "nodeName": "use nodeSelector or affinity",
}

_RESERVED: Final = ", ".join(f"'{label}'" for label in RESERVED_LABELS)


def _reserved_words(what: str) -> str:
    keys = ", ".join((*RESERVED_LABELS, f"{RESERVED_PREFIX}*"))
    return f"spec.template.metadata.{what} sets a key of the operator's own: {keys}; choose another key"


def _reserved(what: str) -> dict[str, str]:
    rule = f"self.all(key, !key.startsWith('{RESERVED_PREFIX}') && !(key in [{_RESERVED}]))"
    return cel(rule, _reserved_words(what))


class OverlayMetadata(ApiModel):
    """Labels and annotations of the pods."""

    labels: dict[str, ShortText] = Field(
        default_factory=dict,
        max_length=32,
        description="Further labels of the pods.",
        json_schema_extra=validated_by(_reserved("labels")),
    )
    annotations: dict[str, LongText] = Field(
        default_factory=dict,
        max_length=32,
        description="Further annotations of the pods.",
        json_schema_extra=validated_by(_reserved("annotations")),
    )

    @field_validator("labels", "annotations")
    @classmethod
    def _must_be_free(cls, values: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        taken = [key for key in values if key.startswith(RESERVED_PREFIX) or key in RESERVED_LABELS]
        if taken:
            raise InvalidSpec(f"{_reserved_words(str(info.field_name))}, got {shortened(taken)}")
        return values


class PodOverlay(ApiModel):
    """Laid over the rendered pods; only what the operator does not decide itself is taken."""

    metadata: OverlayMetadata = Field(
        default_factory=OverlayMetadata, description="Labels and annotations of the pods."
    )
    spec: dict[str, Any] = Field(
        default_factory=dict,
        description=f"Fields of a pod's spec: {', '.join(OVERLAY_FIELDS)}; others are refused.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )

    @field_validator("spec")
    @classmethod
    def _must_be_allowed(cls, fields: dict[str, Any]) -> dict[str, Any]:
        for field, value in fields.items():
            _check(field, value)
        return fields


def _check(field: str, value: object) -> None:
    """Raises InvalidSpec for a field that is not the user's, or is of another type than a pod's."""
    path = f"spec.template.spec.{field}"
    if field not in OVERLAY_FIELDS:
        taken = ", ".join(OVERLAY_FIELDS)
        way_out = WAYS_OUT.get(field, f"remove it; taken are {taken}")
        raise InvalidSpec(f"{path}: is not taken from the overlay, got {shortened(value)}; {way_out}")
    kind = OVERLAY_FIELDS[field]
    if value is not None and not _is_of(kind, value):
        raise InvalidSpec(f"{path}: must be {TYPE_WORDS[kind]}, as in a pod's spec, got {shortened(value)}")


def _is_of(kind: type, value: object) -> bool:
    if isinstance(value, list):
        return kind is list and all(isinstance(one, dict) for one in value)
    return isinstance(value, kind)
