"""The ConfigMap that remembers which commit each line of words was resolved to.

It outlives the pruning of revisions, so that old words go on giving the same weights for as long as
the InferenceService exists.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Final

from octavo.errors import InvalidSpec
from octavo_operator.api import names
from octavo_operator.desired.metadata import Manifest, Owner, build_metadata

PINS_KEY: Final = "pins.json"
MAX_PINS: Final = 200
"""The oldest are forgotten; a line takes about 300 bytes and a ConfigMap holds 1 MiB."""

PATTERNS: Final = {
    "uri": ".+",
    "revision": ".*",
    "refresh_token": ".*",
    "commit": "[0-9a-f]{40}",
    "resolved_at": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One line: these words mean this commit."""

    uri: str
    revision: str
    refresh_token: str
    commit: str
    resolved_at: str

    @property
    def words(self) -> tuple[str, str, str]:
        return self.uri, self.revision, self.refresh_token


def build_pins(owner: Owner, pins: tuple[Pin, ...]) -> Manifest:
    lines = ",\n".join(json.dumps(asdict(pin), sort_keys=True) for pin in pins[-MAX_PINS:])
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": build_metadata(owner, names.pins_name(owner.name), names.service_labels(owner.name)),
        "data": {PINS_KEY: f"[\n{lines}\n]\n"},
    }


def parse_pins(text: str, *, name: str) -> tuple[Pin, ...]:
    """Raises InvalidSpec for what is no list of pins: guessing would break the promise."""
    try:
        lines = json.loads(text)
        if not isinstance(lines, list):
            raise TypeError("it is no list")
        return tuple(_parse_pin(line) for line in lines)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidSpec(
            f"ConfigMap {name}: {PINS_KEY} cannot be read ({error}); restore it, or delete the ConfigMap to "
            "have it made from the revisions that are kept"
        ) from None


def _parse_pin(line: dict[str, str]) -> Pin:
    pin = Pin(**line)
    for key, pattern in PATTERNS.items():
        value = getattr(pin, key)
        if not isinstance(value, str) or re.fullmatch(pattern, value) is None:
            raise ValueError(f"{key} is {value!r}")
    return pin
