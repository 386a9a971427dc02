"""What the watches have told us: our objects, and their children by owner.

The answers to our own writes go in as well, so that a pass never decides on what it has just changed.
An older version never replaces a newer one, and nothing brings back what was seen to be deleted: the
answer to a write may be read after the deletion that followed it.
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
    SURROUNDING_KINDS,
    Kind,
)

Key = tuple[str, str]
"""Namespace and name of an InferenceService."""
Body = Mapping[str, Any]
UNREAD: Final = ("managedFields",)
"""Parts of metadata that nothing here reads and that are large."""


REMEMBERED_DELETIONS: Final = 4096
"""Far more than can be deleted while the answer to one write is under way."""
Place = tuple[str, str, str]
"""Kind, namespace and name of an object."""


class Cache:
    """Bodies by kind and owner; used by one thread."""

    def __init__(self) -> None:
        self._bodies: dict[tuple[str, Key], dict[str, Body]] = {}
        self._owners: dict[Place, Key] = {}
        self._deleted: dict[str, int] = {}

    def put(self, kind: Kind, body: Body) -> Key | None:
        """The key that the object belonged to so far, if a changed label gave it to another."""
        key, name = key_of(kind, body), body["metadata"]["name"]
        known = self.find(kind, key[0], name)
        is_older = known is not None and version_of(body) < version_of(known)
        if is_older or version_of(body) <= self._deleted.get(uid_of(body), -1):
            return None
        before = self.forget(kind, key[0], name)
        self._bodies.setdefault((kind.name, key), {})[name] = trimmed(body)
        self._owners[kind.name, key[0], name] = key
        return before if before != key else None

    def drop(self, kind: Kind, body: Body) -> Key | None:
        """The key that lost the object; None if another object of the same name is there already."""
        uid, name, namespace = uid_of(body), body["metadata"]["name"], body["metadata"]["namespace"]
        self._deleted[uid] = version_of(body)
        if len(self._deleted) > REMEMBERED_DELETIONS:
            del self._deleted[next(iter(self._deleted))]
        known = self.find(kind, namespace, name)
        if known is None or uid_of(known) != uid:
            return None
        return self.forget(kind, namespace, name)

    def forget(self, kind: Kind, namespace: str, name: str) -> Key | None:
        """The key that it belonged to."""
        key = self._owners.pop((kind.name, namespace, name), None)
        if key is None:
            return None
        bodies = self._bodies[kind.name, key]
        del bodies[name]
        if not bodies:
            del self._bodies[kind.name, key]
        return key

    def find(self, kind: Kind, namespace: str, name: str) -> Body | None:
        key = self._owners.get((kind.name, namespace, name))
        return self._bodies[kind.name, key][name] if key is not None else None

    def bodies(self, kind: Kind) -> list[Body]:
        """All of one kind."""
        return [
            body
            for (name, _), bodies in self._bodies.items()
            if name == kind.name
            for body in bodies.values()
        ]

    def service(self, key: Key) -> Body | None:
        return self.find(INFERENCE_SERVICES, *key)

    def children(self, key: Key, uid: str) -> Children:
        """Those that this very object owns, and the pods that its Deployments' pods are labelled as."""
        return Children(
            deployments=self._owned(DEPLOYMENTS, key, uid),
            pods=tuple(self._bodies.get((PODS.name, key), {}).values()),
            revisions=self._owned(REVISIONS, key, uid),
            config_maps=self._owned(CONFIG_MAPS, key, uid),
            services=self._owned(SERVICES, key, uid),
            surroundings=tuple(
                (kind.name, body) for kind in SURROUNDING_KINDS for body in self._owned(kind, key, uid)
            ),
        )

    def _owned(self, kind: Kind, key: Key, uid: str) -> tuple[Body, ...]:
        bodies = self._bodies.get((kind.name, key), {}).values()
        return tuple(body for body in bodies if owner_uid(body) == uid)

    def size(self) -> int:
        return len(self._owners)


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
