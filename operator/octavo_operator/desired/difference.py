"""Does the cluster hold what we want? Only fields that we set are compared: the rest is not ours.

Lists must be as long as ours (an empty one is stored as none), and selectors exactly ours: one more label
in it, and a Service selects no pod.
"""

from __future__ import annotations

from typing import Final

EXACT_PATHS: Final = frozenset({"spec.selector"})


def difference(desired: object, observed: object, path: str = "") -> str | None:
    """The first field where `observed` lacks what `desired` says, or None.

    >>> difference({"spec": {"replicas": 2}}, {"spec": {"replicas": 1, "paused": False}})
    'spec.replicas'
    """
    if isinstance(desired, dict):
        if not isinstance(observed, dict):
            return path or "."
        if path in EXACT_PATHS and observed.keys() - desired.keys():
            return path
        fields = (difference(desired[key], observed.get(key), _join(path, key)) for key in desired)
        return next((found for found in fields if found is not None), None)
    if isinstance(desired, list):
        if not desired and observed is None:
            return None
        if not isinstance(observed, list) or len(desired) != len(observed):
            return path
        pairs = enumerate(zip(desired, observed, strict=True))
        items = (difference(want, have, f"{path}[{index}]") for index, (want, have) in pairs)
        return next((found for found in items if found is not None), None)
    return None if desired == observed else path


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
