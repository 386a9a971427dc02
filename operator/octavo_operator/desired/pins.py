"""The ConfigMap that remembers which commit each line of words was resolved to.

It outlives the pruning of revisions, so that old words go on giving the same weights for as long as
the InferenceService exists.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from octavo.errors import InvalidSpec
from octavo_operator.api import names
from octavo_operator.desired.metadata import Manifest, Owner, build_metadata

PINS_KEY: Final = "pins.json"
MAX_PINS: Final = 200
"""The oldest are forgotten; a line takes about 300 bytes and a ConfigMap holds 1 MiB."""


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
        return tuple(Pin(**line) for line in json.loads(text))
    except (ValueError, TypeError) as error:
        raise InvalidSpec(
            f"ConfigMap {name}: {PINS_KEY} cannot be read ({error}); restore it, or delete the ConfigMap to "
            "have it made from the revisions that are kept"
        ) from None
