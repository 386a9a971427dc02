"""Every error that Octavo raises on purpose, and the one value for an expected "no".

A mistake (bad input) is an exception whose message names the field, the value and the way out.
An answer that is a legitimate "no" (a model that cannot fit, an architecture nobody described) is a
value, so that callers must look at it.
"""

from __future__ import annotations

from dataclasses import dataclass


class OctavoError(Exception):
    """Base of all errors raised on purpose; its text is fit to show to a user."""


class InvalidConfig(OctavoError):
    """A model's configuration is contradictory or malformed."""


class InvalidSpec(OctavoError):
    """A field of a resource or a flag has a value that cannot be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """An architecture whose memory we do not know how to compute: never a silent guess."""

    model_type: str
    reason: str
    known: tuple[str, ...] = ()
    """What could be read from the configuration all the same, one `field=value` each."""
