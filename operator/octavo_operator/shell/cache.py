"""What the watches have told us: our objects, and their children by owner.

The answers to our own writes go in as well, so that a pass never decides on what it has just changed.
An older version never replaces a newer one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from octavo_operator.api import names
from octavo_operator.decide.world import Children
from octavo_operator.shell.kinds import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    INFERENCE_SERVICES,
    PODS,
    REVISIONS,
    SERVICES,
    Kind,
)

Key = tuple[str, str]
"""Namespace and name of an InferenceService."""
Body = Mapping[str, Any]
UNREAD: Final = ("managedFields",)
"""Parts of metadata that nothing here reads and that are large."""


class Cache:
    """Bodies by kind and owner; used by one thread."""

    def __init__(self) -> None:
        self._bodies: dict[tuple[str, Key], dict[str, Body]] = {}

    def put(self, kind: Kind, body: Body) -> None:
        bodies = self._bodies.setdefault((kind.name, key_of(kind, body)), {})
        known = bodies.get(body["metadata"]["name"])
        if known is None or version_of(body) >= version_of(known) or uid_of(body) != uid_of(known):
            bodies[body["metadata"]["name"]] = trimmed(body)

    def drop(self, kind: Kind, body: Body) -> None:
        """Unless another object of the same name is there already."""
        place = (kind.name, key_of(kind, body))
        name = body["metadata"]["name"]
        known = self._bodies.get(place, {}).get(name)
        if known is not None and uid_of(known) == uid_of(body):
            self.forget(kind, place[1], name)

    def forget(self, kind: Kind, key: Key, name: str) -> None:
        bodies = self._bodies.get((kind.name, key), {})
        bodies.pop(name, None)
        if not bodies:
            self._bodies.pop((kind.name, key), None)

    def service(self, key: Key) -> Body | None:
        return self._bodies.get((INFERENCE_SERVICES.name, key), {}).get(key[1])

    def child(self, kind: Kind, key: Key, name: str) -> Body | None:
        return self._bodies.get((kind.name, key), {}).get(name)

    def children(self, key: Key, uid: str) -> Children:
        """Those that this very object owns, and the pods that its Deployments' pods are labelled as."""
        return Children(
            deployments=self._owned(DEPLOYMENTS, key, uid),
            pods=tuple(self._bodies.get((PODS.name, key), {}).values()),
            revisions=self._owned(REVISIONS, key, uid),
            config_maps=self._owned(CONFIG_MAPS, key, uid),
            services=self._owned(SERVICES, key, uid),
        )

    def _owned(self, kind: Kind, key: Key, uid: str) -> tuple[Body, ...]:
        bodies = self._bodies.get((kind.name, key), {}).values()
        return tuple(body for body in bodies if owner_uid(body) == uid)

    def size(self) -> int:
        return sum(map(len, self._bodies.values()))


def key_of(kind: Kind, body: Body) -> Key:
    metadata = body["metadata"]
    if kind is INFERENCE_SERVICES:
        return metadata["namespace"], metadata["name"]
    return metadata["namespace"], metadata.get("labels", {}).get(names.LABEL_SERVICE, "")


def uid_of(body: Body) -> str:
    return str(body["metadata"].get("uid", ""))


def owner_uid(body: Body) -> str:
    """The uid of the controller, or empty."""
    references = body["metadata"].get("ownerReferences", ())
    return next((str(one["uid"]) for one in references if one.get("controller")), "")


def version_of(body: Body) -> int:
    """Versions of one object can be compared as numbers (Kubernetes 1.35 makes it official)."""
    text = str(body["metadata"].get("resourceVersion", "0"))
    return int(text) if text.isdigit() else 0


def trimmed(body: Body) -> Body:
    metadata = {key: value for key, value in body["metadata"].items() if key not in UNREAD}
    return {**body, "metadata": metadata}
