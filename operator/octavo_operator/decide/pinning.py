"""From words to a commit: a line that was resolved once stays resolved."""

from __future__ import annotations

import re

from octavo_operator.api.spec import ModelSource
from octavo_operator.desired.pins import MAX_PINS, Pin


def is_commit(revision: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}", revision) is not None


def find_pin(pins: tuple[Pin, ...], model: ModelSource) -> Pin | None:
    words = (model.uri, model.revision, model.refresh_token)
    return next((pin for pin in pins if pin.words == words), None)


def add_pin(pins: tuple[Pin, ...], pin: Pin) -> tuple[Pin, ...]:
    """A line that is there already is never changed: the first answer stands."""
    if any(known.words == pin.words for known in pins):
        return pins
    return (*pins, pin)[-MAX_PINS:]


def repository_of(uri: str) -> str:
    """
    >>> repository_of("hf://Qwen/Qwen3-8B")
    'Qwen/Qwen3-8B'
    """
    return uri.removeprefix("hf://")
