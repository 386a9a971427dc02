"""One InferenceService with all its children, as frozen values: what a pass decides on."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from octavo.errors import InvalidSpec
from octavo_operator.api import names
from octavo_operator.api.spec import InferenceServiceSpec, ModelSource
from octavo_operator.api.status import InferenceServiceStatus, parse_status
from octavo_operator.decide.observed import DeploymentView, PodView, parse_deployment, parse_pod
from octavo_operator.decide.pinning import find_pin
from octavo_operator.desired.metadata import Owner
from octavo_operator.desired.pins import PINS_KEY, Pin, parse_pins
from octavo_operator.desired.revision import Revision, parse_revision_data

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRevision:
    """A revision as history holds it."""

    revision: Revision
    number: int
    created_at: str
    proven_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Children:
    """The bodies of an object's children, by kind."""

    deployments: tuple[Body, ...] = ()
    pods: tuple[Body, ...] = ()
    revisions: tuple[Body, ...] = ()
    config_maps: tuple[Body, ...] = ()
    services: tuple[Body, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a pass decides on."""

    owner: Owner
    generation: int
    spec: InferenceServiceSpec
    status: InferenceServiceStatus
    """As the API server has it now."""
    pins: tuple[Pin, ...]
    revisions: Mapping[str, StoredRevision]
    deployments: Mapping[str, DeploymentView]
    pods: tuple[PodView, ...]
    selected: str | None
    """The revision that the Service points at, or last did if somebody meddled with it."""

    @property
    def proven(self) -> frozenset[str]:
        return frozenset(one for one, stored in self.revisions.items() if stored.proven_at is not None)

    @property
    def numbers(self) -> dict[str, int]:
        return {one: stored.number for one, stored in self.revisions.items()}


def parse_owner(body: Body) -> Owner:
    metadata = body["metadata"]
    return Owner(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])


def parse_world(body: Body, children: Children) -> World:
    """Raises InvalidSpec for what an older schema let through or a hand made of a child."""
    owner = parse_owner(body)
    status = parse_status(dict(body.get("status", {})))
    revisions = _parse_revisions(children.revisions)
    return World(
        owner=owner,
        generation=body["metadata"].get("generation", 0),
        spec=parse_spec(body),
        status=status,
        pins=_parse_pins(owner, children.config_maps),
        revisions=revisions,
        deployments={view.revision: view for view in map(parse_deployment, _staying(children.deployments))},
        pods=tuple(parse_pod(pod) for pod in children.pods),
        selected=_parse_selected(owner, children.services, revisions) or status.current_revision,
    )


def parse_spec(body: Body) -> InferenceServiceSpec:
    try:
        return InferenceServiceSpec.model_validate(body.get("spec", {}))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(("spec", *map(str, first["loc"])))
        raise InvalidSpec(f"{field}: {first['msg']}, got {first['input']!r}") from None


def _staying(bodies: Iterable[Body]) -> list[Body]:
    return [body for body in bodies if "deletionTimestamp" not in body["metadata"]]


def _parse_pins(owner: Owner, config_maps: Iterable[Body]) -> tuple[Pin, ...]:
    name = names.pins_name(owner.name)
    for body in config_maps:
        if body["metadata"]["name"] == name:
            return parse_pins(body.get("data", {}).get(PINS_KEY, "[]"), name=name)
    return ()


def _parse_revisions(bodies: Iterable[Body]) -> dict[str, StoredRevision]:
    """Those that cannot be read (written by a newer operator) are left alone and count as absent."""
    found: dict[str, StoredRevision] = {}
    for body in _staying(bodies):
        try:
            revision = parse_revision_data(body["data"])
        except (KeyError, TypeError, ValueError):
            continue
        metadata = body["metadata"]
        found[revision.hash] = StoredRevision(
            revision=revision,
            number=body["revision"],
            created_at=metadata["creationTimestamp"],
            proven_at=metadata.get("annotations", {}).get(names.ANNOTATION_PROVEN_AT),
        )
    return found


def _parse_selected(owner: Owner, services: Iterable[Body], known: Container[str]) -> str | None:
    """None if the Service is gone or was turned to something that is no revision of ours."""
    for body in services:
        if body["metadata"]["name"] == owner.name:
            selected: str | None = (body["spec"].get("selector") or {}).get(names.LABEL_REVISION)
            return selected if selected in known else None
    return None


def recall_pin(world: World, model: ModelSource) -> Pin | None:
    """The commit of these words, from the pins or, if those were lost, from the revisions kept."""
    pin = find_pin(world.pins, model)
    if pin is not None:
        return pin
    words = model.model_dump(mode="json", by_alias=True, include={"uri", "revision", "refresh_token"})
    for stored in sorted(world.revisions.values(), key=lambda one: one.number):
        known = stored.revision.intent["model"]
        if all(known.get(key) == value for key, value in words.items()):
            return Pin(
                uri=model.uri,
                revision=model.revision,
                refresh_token=model.refresh_token,
                commit=stored.revision.commit,
                resolved_at=stored.created_at,
            )
    return None
