"""The planner's memory as text, for the ConfigMap that outlives the operator.

Versioned, and forgiving: a text that cannot be read, whoever wrote it, is no memory, which costs a while of
caution and nothing else.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from pydantic import TypeAdapter

from octavo.errors import OctavoError
from octavo_operator.decide.scaling.state import LiveMemory, PlannerState

MEMORY_VERSION: Final = 2
MAX_TEXT: Final = 512 * 1024
"""Longer ones are nobody's memory; ours takes about 20 KiB after a day."""
MOST: Final = 1e15
"""No number that we keep is larger."""
SIGNED: Final = "learned"
"""The only part with numbers below zero."""
AHEAD_SECONDS: Final = 60.0
"""A memory that is further in the future is of another clock."""
_STATE: Final = TypeAdapter(PlannerState)


def format_memory(state: PlannerState) -> str:
    """Without the live part."""
    durable = replace(state, live=LiveMemory())
    values = _STATE.dump_python(durable, mode="json", exclude={"live"})
    return json.dumps({"version": MEMORY_VERSION, "state": values}, sort_keys=True, separators=(",", ":"))


def parse_memory(text: str, *, now: float) -> PlannerState | None:
    """None for what is empty, garbage, or of another version or time."""
    if not text or len(text) > MAX_TEXT:
        return None
    try:
        read: Any = json.loads(text, parse_constant=_refuse)
        if not isinstance(read, dict) or read.get("version") != MEMORY_VERSION:
            return None
        _check_numbers(read["state"], signed=False)
        state = _STATE.validate_json(json.dumps(read["state"]), strict=True)
    except (ValueError, KeyError, TypeError, AssertionError, RecursionError, OctavoError):
        return None
    return None if (state.seen_at or 0.0) > now + AHEAD_SECONDS else state


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number that was stored")


def _check_numbers(value: object, *, signed: bool) -> None:
    """Raises ValueError for one that no planner has written."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check_numbers(item, signed=signed or key == SIGNED)
    elif isinstance(value, list):
        for item in value:
            _check_numbers(item, signed=signed)
    elif isinstance(value, int | float) and not (-MOST if signed else 0) <= value <= MOST:
        raise ValueError(f"{value} is out of range")
