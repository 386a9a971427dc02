"""The intent: those words of spec that make a revision, and their hash.

Only what changes the pods is hashed: replicas, autoscaling, strategy, gates, deadlines and history are
not, so editing them restarts nothing; nor are the operator's own defaults, so upgrading it restarts nothing
either. The inputs carry a version. A field that came after the first schema is added only where it is set,
so that the hash of an object that does not use it stays what it was.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from octavo_operator.api.spec import ApiModel, InferenceServiceSpec

HASH_VERSION: Final = 1
HASH_LENGTH: Final = 10
"""Hexadecimal digits: 40 bits, for the at most some hundred revisions of one object."""

LATER_FIELDS: Final = {
    "model": frozenset({"credentials_secret_ref", "cache"}),
    "engine": frozenset({"prefix_caching", "api_key_secret_ref"}),
    "kv_cache": frozenset({"oversize_policy"}),
}
"""Fields of each section that came later: hashed where they are set."""
NEVER_HASHED: Final = {"model": frozenset({"revision_policy"})}
"""How words become a commit; the commit itself is the revision's."""
TRACKED_COMMIT: Final = "trackedCommit"
"""In the intent of a revision whose words are followed: the same words make another one when they move."""


def build_intent(spec: InferenceServiceSpec, *, tracked_commit: str = "") -> dict[str, Any]:
    model = _hashed("model", spec.model)
    if tracked_commit:
        model[TRACKED_COMMIT] = tracked_commit
    engine = _hashed("engine", spec.engine)
    engine["kvCache"] = _hashed("kv_cache", spec.engine.kv_cache)
    return {
        "model": model,
        "engine": engine,
        "resources": spec.resources.model_dump(mode="json", by_alias=True),
        "rollout": {"drainSeconds": spec.rollout.drain_seconds},
        "routing": {"port": spec.routing.port},
        **_where_set("accelerator", spec.accelerator),
        **_where_set("template", spec.template),
    }


def _hashed(section: str, values: ApiModel) -> dict[str, Any]:
    later = LATER_FIELDS.get(section, frozenset())
    first = values.model_dump(
        mode="json", by_alias=True, exclude={*later, *NEVER_HASHED.get(section, frozenset())}
    )
    return {
        **first,
        **values.model_dump(mode="json", by_alias=True, include=set(later), exclude_defaults=True),
    }


def _where_set(name: str, section: ApiModel | None) -> dict[str, Any]:
    """A section that came later, without what it does not say."""
    said = section.model_dump(mode="json", by_alias=True, exclude_defaults=True) if section else {}
    return {name: said} if said else {}


def hash_intent(intent: dict[str, Any]) -> str:
    """Stable over operator versions, key order and interpreters."""
    text = json.dumps({"version": HASH_VERSION, "intent": intent}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]
