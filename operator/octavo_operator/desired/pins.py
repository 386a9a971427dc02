"""The ConfigMap that remembers which commit each line of words was resolved to.

It outlives the pruning of revisions, so that old words go on giving the same weights for as long as
the InferenceService exists. Under the policy Track a line is added whenever the branch has moved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from octavo.errors import OctavoError
from octavo_operator.api import names
from octavo_operator.desired.metadata import Manifest, Owner, build_metadata

PINS_KEY: Final = "pins.json"
CONFIGS_KEY: Final = "configs.json"
MAX_PINS: Final = 200
"""The oldest are forgotten; a line takes about 300 bytes and a ConfigMap holds 1 MiB."""

DIGEST: Final = "sha256:[0-9a-f]{64}"
PATTERNS: Final = {
    "uri": ".+",
    "revision": ".*",
    "refresh_token": ".*",
    "commit": f"[0-9a-f]{{40}}|{DIGEST}",
    "resolved_at": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "manifest_digest": f"({DIGEST})?",
}


class PinsDamaged(OctavoError):
    """The ConfigMap is no longer what was written; spec is right, and nothing is done on a guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One line: these words mean this commit."""

    uri: str
    revision: str
    refresh_token: str
    commit: str
    """On the hub; of a folder or an image the digest of its files."""
    resolved_at: str
    tracked: bool = False
    """One of the commits that a followed branch has had: the latest stands, not the first."""
    manifest_digest: str = ""
    """Of the commit's files, as the first who saw them all had them; empty until then."""
    size_bytes: int = 0
    """Of those files."""

    @property
    def words(self) -> tuple[str, str, str]:
        return self.uri, self.revision, self.refresh_token


LATER_FIELDS: Final = {"tracked": False, "manifest_digest": "", "size_bytes": 0}
"""Written only where they say something: a ConfigMap that has no use for them stays as it was."""
KNOWN_FIELDS: Final = frozenset(field.name for field in fields(Pin))
REQUIRED_FIELDS: Final = KNOWN_FIELDS - LATER_FIELDS.keys()


def build_pins(owner: Owner, pins: tuple[Pin, ...], configs: Mapping[str, str]) -> Manifest:
    """`configs`: packed configurations by commit."""
    lines = ",\n".join(json.dumps(render_pin(pin), sort_keys=True) for pin in pins[-MAX_PINS:])
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": build_metadata(owner, names.pins_name(owner.name), names.service_labels(owner.name)),
        "data": {
            PINS_KEY: f"[\n{lines}\n]\n",
            **({CONFIGS_KEY: json.dumps(configs, indent=0)} if configs else {}),
        },
    }


def render_pin(pin: Pin) -> dict[str, Any]:
    return {key: value for key, value in asdict(pin).items() if LATER_FIELDS.get(key) != value}


def parse_pins(text: str, *, name: str) -> tuple[Pin, ...]:
    """Raises PinsDamaged for what is no list of pins: guessing would break the promise."""
    try:
        lines = json.loads(text)
        if not isinstance(lines, list):
            raise TypeError("it is no list")
        return tuple(_parse_pin(line) for line in lines)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise PinsDamaged(
            f"ConfigMap {name}: {PINS_KEY} cannot be read ({error}), so nothing is changed; restore it, or "
            f"`kubectl delete configmap {name}`: it is made anew from the revisions that are kept"
        ) from None


def _parse_pin(line: dict[str, Any]) -> Pin:
    """A field that a newer operator wrote is passed over."""
    if missing := sorted(REQUIRED_FIELDS - line.keys()):
        raise ValueError(f"a line lacks {', '.join(missing)}")
    pin = Pin(**{key: value for key, value in line.items() if key in KNOWN_FIELDS})
    for key, pattern in PATTERNS.items():
        value = getattr(pin, key)
        if not isinstance(value, str) or re.fullmatch(pattern, value) is None:
            raise ValueError(f"{key} is {value!r}")
    if not isinstance(pin.tracked, bool) or type(pin.size_bytes) is not int or pin.size_bytes < 0:
        raise ValueError(f"tracked is {pin.tracked!r}, size_bytes is {pin.size_bytes!r}")
    return pin
