"""The intent: those words of spec that make a revision, and their hash.

Only what changes the pods is hashed: replicas, autoscaling, deadlines and history are not, so editing
them restarts nothing; nor are the operator's own defaults, so upgrading it restarts nothing either.
The inputs carry a version. A field of a later schema is added only where it is set, so that the hash of
an object that does not use it stays what it was.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from octavo_operator.api.spec import InferenceServiceSpec

HASH_VERSION: Final = 1
HASH_LENGTH: Final = 10
"""Hexadecimal digits: 40 bits, for the at most some hundred revisions of one object."""


def build_intent(spec: InferenceServiceSpec) -> dict[str, Any]:
    return {
        "model": spec.model.model_dump(mode="json", by_alias=True),
        "engine": spec.engine.model_dump(mode="json", by_alias=True),
        "resources": spec.resources.model_dump(mode="json", by_alias=True),
        "rollout": {"drainSeconds": spec.rollout.drain_seconds},
        "routing": {"port": spec.routing.port},
    }


def hash_intent(intent: dict[str, Any]) -> str:
    """Stable over operator versions, key order and interpreters."""
    text = json.dumps({"version": HASH_VERSION, "intent": intent}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]
