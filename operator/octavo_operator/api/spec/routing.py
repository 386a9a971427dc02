"""`spec.routing`: how clients reach the service."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from octavo.engine_contract import DEFAULT_PORT
from octavo_operator.api.spec.base import ApiModel, cel, validated_by
from octavo_operator.api.spec.model import OBJECT_NAME_PATTERN

HOSTNAME_PATTERN: Final = r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
SECTION_PATTERN: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"


class ParentReference(ApiModel):
    """A Gateway that the route is attached to."""

    name: str = Field(
        pattern=OBJECT_NAME_PATTERN, min_length=1, max_length=253, description="Name of the Gateway."
    )
    namespace: str = Field(
        default="",
        pattern=OBJECT_NAME_PATTERN,
        max_length=63,
        description="Its namespace. Empty: the object's own.",
    )
    section_name: str = Field(
        default="",
        pattern=SECTION_PATTERN,
        max_length=253,
        description="One of its listeners. Empty: all that allow it.",
    )


class HttpRoute(ApiModel):
    """A Gateway API HTTPRoute with a weight for each revision."""

    parent_refs: tuple[ParentReference, ...] = Field(
        min_length=1, max_length=8, description="Gateways that the route is attached to."
    )
    hostnames: tuple[Annotated[str, Field(pattern=HOSTNAME_PATTERN, max_length=253)], ...] = Field(
        default=(), max_length=16, description="Host names that it answers to. Empty: all of the Gateway's."
    )


class EndpointPicker(ApiModel):
    """The extension that picks a pod for each request."""

    name: str = Field(
        pattern=OBJECT_NAME_PATTERN, min_length=1, max_length=63, description="Name of its Service."
    )
    port: int = Field(default=9002, ge=1, le=65535, description="Port of its Service.")


class InferencePool(ApiModel):
    """A Gateway API Inference Extension InferencePool for each revision."""

    endpoint_picker_ref: EndpointPicker = Field(
        description="The extension that picks a pod for each request, by the engines' own metrics. It must "
        "serve every pool that names it: a pool's name ends with its revision."
    )


class Routing(ApiModel):
    """How clients reach the service."""

    port: int = Field(
        default=DEFAULT_PORT,
        ge=1024,
        le=65535,
        description="Port of the Service and the engine. Immutable.",
        # On the port itself: on the section, the API server would evaluate it for the default, `{}`.
        json_schema_extra=validated_by(
            cel("self == oldSelf", "spec.routing.port is immutable; make a new InferenceService")
        ),
    )
    http_route: HttpRoute | None = Field(
        default=None, description="Makes an HTTPRoute; canary weights are then exact. Absent: none is made."
    )
    inference_pool: InferencePool | None = Field(
        default=None,
        description="Makes an InferencePool for each revision, to which the HTTPRoute points. Absent: none.",
    )
