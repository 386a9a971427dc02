"""What all sections of `spec` and `status` share: how they are read, and how their rules are written.

A rule between fields is written twice: in the Common Expression Language for the API server, and as a
validator for everybody who has no API server (`octavo render`) or one with an older definition. A test holds
the two together.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class ApiModel(BaseModel):
    """Frozen, camelCase on the wire, and deaf to fields of a newer schema."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore")


def shortened(value: object, most: int = 80) -> str:
    """
    >>> shortened(["a"] * 40, 12)
    "['a', 'a', …"
    """
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def cel(rule: str, message: str) -> dict[str, str]:
    """One validation rule in the Common Expression Language, run by the API server."""
    return {"rule": rule, "message": message}


def validated_by(*rules: dict[str, str]) -> dict[str, Any]:
    return {"x-kubernetes-validations": list(rules)}
