"""What the watches have told us: our objects, and their children by owner.

The answers to our own writes go in as well, so that a pass never decides on what it has just changed.
An older version never replaces a newer one, and nothing brings back what was seen to be deleted: the
answer to a write may be read after the deletion that followed it.

Bodies are kept as compressed JSON without what nobody reads, and unpacked for the pass that asks for them:
as Python's objects the eight or nine of a service would take ten times as much, for every service at once.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
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
FASTEST: Final = 1
"""Level of compression; the best one saves a tenth more and takes three times as long."""
REMEMBERED_DELETIONS: Final = 4096
"""Far more than can be deleted while the answer to one write is under way."""
Place = tuple[str, str, str]
"""Kind, namespace and name of an object."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Tells one state of an object from any other."""

    uid: str
    version: int


@dataclass(frozen=True, slots=True)
class Packed:
    """One object; what the cache itself asks of it stays readable."""

    mark: Mark
    owner_uid: str
    data: bytes

    def unpack(self) -> Body:
        body: Body = json.loads(zlib.decompress(self.data))
        return body


class Cache:
    """Bodies by kind and owner; used by one thread."""

    def __init__(self) -> None:
        self._packed: dict[tuple[str, Key], dict[str, Packed]] = {}
        self._keys: dict[Place, Key] = {}
        self._deleted: dict[str, int] = {}

    def put(self, kind: Kind, body: Body) -> Key | None:
        """The key that the object belonged to so far, if a changed label gave it to another."""
        key, name, mark = key_of(kind, body), body["metadata"]["name"], mark_of(body)
        known = self._find(kind, key[0], name)
        is_older = known is not None and mark.version < known.mark.version
        if is_older or mark.version <= self._deleted.get(mark.uid, -1):
            return None
        before = self.forget(kind, key[0], name)
        self._packed.setdefault((kind.name, key), {})[name] = pack(body)
        self._keys[kind.name, key[0], name] = key
        return before if before != key else None

    def drop(self, kind: Kind, body: Body) -> Key | None:
        """The key that lost the object; None if another object of the same name is there already."""
        mark, name, namespace = mark_of(body), body["metadata"]["name"], body["metadata"]["namespace"]
        self._deleted[mark.uid] = mark.version
        if len(self._deleted) > REMEMBERED_DELETIONS:
            del self._deleted[next(iter(self._deleted))]
        known = self._find(kind, namespace, name)
        if known is None or known.mark.uid != mark.uid:
            return None
        return self.forget(kind, namespace, name)

    def forget(self, kind: Kind, namespace: str, name: str) -> Key | None:
        """The key that it belonged to."""
        key = self._keys.pop((kind.name, namespace, name), None)
        if key is None:
            return None
        of_key = self._packed[kind.name, key]
        del of_key[name]
        if not of_key:
            del self._packed[kind.name, key]
        return key

    def find(self, kind: Kind, namespace: str, name: str) -> Body | None:
        found = self._find(kind, namespace, name)
        return found.unpack() if found is not None else None

    def _find(self, kind: Kind, namespace: str, name: str) -> Packed | None:
        key = self._keys.get((kind.name, namespace, name))
        return self._packed[kind.name, key][name] if key is not None else None

    def key(self, kind: Kind, namespace: str, name: str) -> Key | None:
        """Of the service that the object belongs to."""
        return self._keys.get((kind.name, namespace, name))

    def mark(self, kind: Kind, namespace: str, name: str) -> Mark | None:
        found = self._find(kind, namespace, name)
        return found.mark if found is not None else None

    def marks(self, kind: Kind) -> dict[Key, Mark]:
        """Of all objects of one kind, by their own namespace and name."""
        return {
            (key[0], object_name): packed.mark
            for (kind_name, key), of_key in self._packed.items()
            if kind_name == kind.name
            for object_name, packed in of_key.items()
        }

    def service(self, key: Key) -> Body | None:
        return self.find(INFERENCE_SERVICES, *key)

    def children(self, key: Key, uid: str) -> Children:
        """Those that this very object owns, and the pods that its Deployments' pods are labelled as."""
        return Children(
            deployments=self._owned(DEPLOYMENTS, key, uid),
            pods=tuple(pod.unpack() for pod in self._of(PODS, key)),
            revisions=self._owned(REVISIONS, key, uid),
            config_maps=self._owned(CONFIG_MAPS, key, uid),
            services=self._owned(SERVICES, key, uid),
            surroundings=tuple(
                (kind.name, body) for kind in SURROUNDING_KINDS for body in self._owned(kind, key, uid)
            ),
        )

    def _owned(self, kind: Kind, key: Key, uid: str) -> tuple[Body, ...]:
        return tuple(one.unpack() for one in self._of(kind, key) if one.owner_uid == uid)

    def _of(self, kind: Kind, key: Key) -> Collection[Packed]:
        return self._packed.get((kind.name, key), {}).values()

    def size(self) -> int:
        return len(self._keys)


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


def mark_of(body: Body) -> Mark:
    return Mark(uid_of(body), version_of(body))


def pack(body: Body) -> Packed:
    metadata = {key: value for key, value in body["metadata"].items() if key not in UNREAD}
    text = json.dumps({**body, "metadata": metadata}, separators=(",", ":"))
    return Packed(mark_of(body), owner_uid(body), zlib.compress(text.encode(), FASTEST))
