"""One InferenceService with all its children, as frozen values: what a pass decides on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from octavo.errors import InvalidSpec
from octavo.model_source import parse_model_uri
from octavo_operator.api import names
from octavo_operator.api.spec import InferenceServiceSpec
from octavo_operator.api.status import InferenceServiceStatus, parse_status
from octavo_operator.decide.intent import TRACKED_COMMIT
from octavo_operator.decide.kept_configs import parse_kept
from octavo_operator.decide.observed import (
    DeploymentView,
    Placed,
    PodView,
    parse_deployment,
    parse_placed,
    parse_pod,
)
from octavo_operator.decide.resolving import ResolverView, is_resolver, parse_resolver
from octavo_operator.decide.upstream import Upstream
from octavo_operator.desired.learned import Learned, parse_annotations
from octavo_operator.desired.metadata import Owner
from octavo_operator.desired.pins import CONFIGS_KEY, PINS_KEY, Pin, parse_pins
from octavo_operator.desired.revision import Revision, parse_revision_data
from octavo_operator.desired.scaling_memory import MEMORY_KEY

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRevision:
    """A revision as history holds it."""

    revision: Revision
    number: int
    created_at: str
    learned: Learned
    data: Mapping[str, Any]
    """As it is stored, to the letter: it can never be changed, not even by a field that we do not know."""

    @property
    def proven_at(self) -> str:
        """Empty: never."""
        return self.learned.proven_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Children:
    """The bodies of an object's children, by kind."""

    deployments: tuple[Body, ...] = ()
    pods: tuple[Body, ...] = ()
    revisions: tuple[Body, ...] = ()
    config_maps: tuple[Body, ...] = ()
    services: tuple[Body, ...] = ()
    surroundings: tuple[tuple[str, Body], ...] = ()
    """Kind and body of whatever comes and goes with a revision or a field of spec, Services among them."""


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
    """The revision that the Service belongs to, or last did if somebody meddled with it."""
    shared: bool = False
    """The Service selects the pods of all revisions."""
    scaling_memory: str = ""
    """What the planner wrote down of this service, as text; empty where nothing is."""
    engine_reported_blocks: int | None = None
    """KV blocks that an engine of the planned revision measured room for; None while none is known."""
    resolvers: tuple[ResolverView, ...] = ()
    """Pods that look up what the operator may not see."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Configurations that are kept, packed, by commit."""
    fetching: str = ""
    """How far the pods of the planned revision are with their files, in words; empty if that is unknown."""
    upstream: Upstream | None = None
    """What the words stand for on the hub by now; None while that is not known."""
    surroundings: tuple[Placed, ...] = ()
    scouting: str = ""
    """Question of the resolver pod that looks whether a private branch has moved; empty if none is out."""
    hub_endpoint: str = ""
    """Of the installation; empty: the public hub."""
    served_kinds: frozenset[str] = frozenset()
    """Kinds of other projects that the API server has."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """What revisions were found to answer to the probes of the quality gate, in this pass."""

    @property
    def proven(self) -> frozenset[str]:
        """As their records say; status is asked too, because a record can be deleted by hand."""
        return proven_revisions(self.revisions, self.status)

    @property
    def numbers(self) -> dict[str, int]:
        return {one: stored.number for one, stored in self.revisions.items()}


def parse_owner(body: Body) -> Owner:
    metadata = body["metadata"]
    return Owner(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])


def parse_world(body: Body, children: Children) -> World:
    """Raises InvalidSpec for what an older schema let through, PinsDamaged for what a hand made of them."""
    owner = parse_owner(body)
    check_service_name(owner.name)
    status = parse_status(dict(body.get("status", {})))
    revisions = _parse_revisions(children.revisions)
    ledger = _ledger_of(owner, children.config_maps)
    return World(
        owner=owner,
        generation=body["metadata"].get("generation", 0),
        spec=parse_spec(body),
        status=status,
        pins=merge_pins(
            parse_pins(ledger.get(PINS_KEY, "[]"), name=names.pins_name(owner.name)), revisions.values()
        ),
        configs=parse_kept(ledger.get(CONFIGS_KEY, "{}")),
        revisions=revisions,
        deployments={view.revision: view for view in map(parse_deployment, _staying(children.deployments))},
        pods=tuple(parse_pod(pod) for pod in children.pods if not is_resolver(pod)),
        resolvers=_parse_resolvers(owner, children.pods),
        scaling_memory=_find_scaling_memory(owner, children.config_maps),
        selected=_find_selected(owner, children.services, revisions, status),
        surroundings=tuple(parse_placed(kind, body) for kind, body in children.surroundings),
        shared=any(_is_shared(body) for body in _main_services(owner, children.services)),
    )


def check_service_name(name: str) -> None:
    if len(name) > names.MAX_NAME_LENGTH or re.fullmatch(names.DNS_1035, name) is None:
        raise InvalidSpec(
            f"metadata.name: must be at most {names.MAX_NAME_LENGTH} lower-case letters, digits and '-', the "
            f"first a letter, since a Service carries it, got {name!r}; make a new InferenceService"
        )


def parse_spec(body: Body) -> InferenceServiceSpec:
    try:
        spec = InferenceServiceSpec.model_validate(body.get("spec", {}))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(("spec", *map(str, first["loc"])))
        words = first["msg"].removeprefix("Value error, ")
        raise InvalidSpec(f"{field}: {words}, got {first['input']!r}") from None
    parse_model_uri(spec.model.uri)
    return spec


def _staying(bodies: Iterable[Body]) -> list[Body]:
    return [body for body in bodies if "deletionTimestamp" not in body["metadata"]]


def _parse_resolvers(owner: Owner, pods: Iterable[Body]) -> tuple[ResolverView, ...]:
    views = (parse_resolver(pod) for pod in pods if is_resolver(pod))
    return tuple(view for view in views if view.owner_uid == owner.uid)


def _ledger_of(owner: Owner, config_maps: Iterable[Body]) -> Mapping[str, str]:
    """The data of the ConfigMap that remembers."""
    name = names.pins_name(owner.name)
    found = (body for body in config_maps if body["metadata"]["name"] == name)
    return next((body.get("data") or {} for body in found), {})


def _find_scaling_memory(owner: Owner, config_maps: Iterable[Body]) -> str:
    name = names.scaling_memory_name(owner.name)
    found = (body for body in config_maps if body["metadata"]["name"] == name)
    return next((str(body.get("data", {}).get(MEMORY_KEY, "")) for body in found), "")


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
            learned=parse_annotations(metadata.get("annotations", {})),
            data=body["data"],
        )
    return found


def proven_revisions(
    revisions: Mapping[str, StoredRevision], status: InferenceServiceStatus
) -> frozenset[str]:
    recorded = frozenset(one for one, stored in revisions.items() if stored.proven_at)
    return recorded | {status.current_revision} if status.current_revision else recorded


def _find_selected(
    owner: Owner,
    services: Iterable[Body],
    revisions: Mapping[str, StoredRevision],
    status: InferenceServiceStatus,
) -> str | None:
    """What the Service says, unless somebody deleted it or turned it to what was never ready."""
    selected = next(map(_serving_of, _main_services(owner, services)), None)
    if selected in proven_revisions(revisions, status):
        return selected
    return status.current_revision or (selected if selected in revisions else None)


def _main_services(owner: Owner, services: Iterable[Body]) -> list[Body]:
    return [body for body in services if body["metadata"]["name"] == owner.name]


def _serving_of(service: Body) -> str | None:
    """The annotation; an older operator said it by the selector alone."""
    told: str | None = (service["metadata"].get("annotations") or {}).get(names.ANNOTATION_SERVING)
    return told or _selector_of(service).get(names.LABEL_REVISION)


def _selector_of(service: Body) -> Mapping[str, str]:
    return service["spec"].get("selector") or {}


def _is_shared(service: Body) -> bool:
    return names.LABEL_REVISION not in _selector_of(service)


def merge_pins(pins: Iterable[Pin], revisions: Iterable[StoredRevision]) -> tuple[Pin, ...]:
    """What the revisions kept say comes first: nobody can edit them, and the ConfigMap can be lost."""
    recorded = {_line_of(pin): pin for pin in map(_pin_of, sorted(revisions, key=lambda one: one.number))}
    remembered = tuple(pins)
    known = {_line_of(pin) for pin in remembered}
    lost = tuple(pin for line, pin in recorded.items() if line not in known)
    return lost + tuple(_agreed(pin, recorded.get(_line_of(pin))) for pin in remembered)


def _line_of(pin: Pin) -> tuple[str, ...]:
    """Fixed words have one line; a followed branch has one for each commit that it had."""
    return (*pin.words, pin.commit) if pin.tracked else pin.words


def _agreed(pin: Pin, recorded: Pin | None) -> Pin:
    return pin if recorded is None or recorded.commit == pin.commit else recorded


def _pin_of(stored: StoredRevision) -> Pin:
    model = stored.revision.intent["model"]
    return Pin(
        uri=model["uri"],
        revision=model.get("revision", ""),
        refresh_token=model.get("refreshToken", ""),
        commit=stored.revision.commit,
        resolved_at=stored.created_at,
        tracked=TRACKED_COMMIT in model,
        manifest_digest=stored.revision.manifest_digest,
    )
