"""Configurations that are kept beside the ledger, packed: for an edit of other fields nobody is asked.

A model on a volume would be read to its last byte again, and a hub may be out of order. What is too long
to keep, or cannot be read, is looked up anew.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Final

from octavo.model_report import pack_config, unpack_config
from octavo_operator.desired.pins import Pin

MAX_KEPT: Final = 20
MAX_PACKED_LENGTH: Final = 8192
"""Most take one or two thousand; a ConfigMap holds 1 MiB."""


def keep_config(kept: Mapping[str, str], pins: Iterable[Pin], *, commit: str, config: str) -> dict[str, str]:
    """By commit, of the latest lines; `config` is empty where nothing was looked up."""
    packed = dict(kept)
    if config and commit not in packed:
        packed[commit] = _pack(config)
    latest = list(dict.fromkeys(pin.commit for pin in reversed(list(pins))))[:MAX_KEPT]
    wanted = (one for one in reversed(latest) if one in packed)
    return {one: packed[one] for one in wanted if 0 < len(packed[one]) <= MAX_PACKED_LENGTH}


def _pack(config: str) -> str:
    try:
        return pack_config(json.loads(config))
    except (ValueError, RecursionError):
        return ""


def recall_config(kept: Mapping[str, str], commit: str) -> str | None:
    """Its text; None where it was not kept, or is not what was written."""
    if commit not in kept:
        return None
    try:
        return json.dumps(unpack_config(kept[commit]))
    except (ValueError, TypeError, zlib.error, RecursionError):
        return None


def parse_kept(text: str) -> dict[str, str]:
    """What can be read of it."""
    try:
        kept = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(kept, dict):
        return {}
    return {commit: packed for commit, packed in kept.items() if isinstance(packed, str)}
