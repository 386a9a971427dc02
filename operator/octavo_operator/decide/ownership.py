"""Who owns a field of the user's object, by the API server's own records (`metadata.managedFields`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

PERSONAL: Final = re.compile(r"(kubectl.*|octavo-cli|before-first-apply|k9s|lens|OpenAPI-Generator)")
"""Field managers that a person's own tools use; all others are machines that will write the field again."""


def machine_owners(body: Mapping[str, Any], paths: Iterable[str]) -> tuple[str, ...]:
    """Field managers, other than a person's tools, that own any of these fields."""
    wanted = tuple(paths)
    owners = {
        str(entry.get("manager", ""))
        for entry in body.get("metadata", {}).get("managedFields", ())
        if not entry.get("subresource") and any(_owns(entry.get("fieldsV1", {}), path) for path in wanted)
    }
    return tuple(sorted(owner for owner in owners if PERSONAL.fullmatch(owner) is None))


def last_applier(body: Mapping[str, Any]) -> str | None:
    """Who last applied the object server-side; its fields are what a new apply would replace."""
    applied = [
        entry
        for entry in body.get("metadata", {}).get("managedFields", ())
        if entry.get("operation") == "Apply" and not entry.get("subresource")
    ]
    latest = max(applied, key=lambda entry: str(entry.get("time", "")), default=None)
    return str(latest["manager"]) if latest else None


def _owns(fields: Mapping[str, Any], path: str) -> bool:
    """Whether a set of fields holds a path, or one above it whole.

    >>> _owns({"f:spec": {"f:model": {"f:revision": {}}}}, "spec.model.revision")
    True
    """
    node: Mapping[str, Any] = fields
    for part in path.split("."):
        if f"f:{part}" not in node:
            return False
        node = node[f"f:{part}"]
        if not node or set(node) == {"."}:
            return True
    return True
