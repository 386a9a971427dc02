"""An InferenceService from a file, as kubectl would read it: strictly, so that a slip is no field."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import yaml

from octavo.errors import InvalidSpec
from octavo_operator.api import names
from octavo_operator.api.crd import build_schema
from octavo_operator.api.spec.base import shortened

JSON_TYPES: Final[dict[str, type]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "object": dict,
    "string": str,
}
TYPE_WORDS: Final = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "an integer",
    "object": "an object",
    "string": "a text",
}


def add_file_option(parser: argparse.ArgumentParser, *other_names: str) -> None:
    parser.add_argument(
        *("-f", "--file", *other_names),
        metavar="FILE",
        required=True,
        help="an InferenceService; - reads standard input",
    )


def read_service_file(path: str) -> dict[str, Any]:
    """The one InferenceService of a YAML or JSON file; other kinds beside it are left alone."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        documents = list(yaml.safe_load_all(text))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidSpec(f"--file: {path} cannot be read: {error}") from None
    found = [one for one in documents if isinstance(one, dict) and one.get("kind") == names.KIND]
    if len(found) != 1:
        raise InvalidSpec(f"--file: {path} must hold one {names.KIND}, got {len(found)}")
    return without_nulls(checked(found[0], path))


def without_nulls(body: Mapping[str, Any]) -> dict[str, Any]:
    """An empty field is an absent one, to the API server too.

    >>> without_nulls({"spec": {"rollout": None, "replicas": 2}})
    {'spec': {'replicas': 2}}
    """
    return {key: _value_without_nulls(one) for key, one in body.items() if one is not None}


def _value_without_nulls(value: object) -> object:
    if isinstance(value, list):
        return [_value_without_nulls(one) for one in value]
    return without_nulls(value) if isinstance(value, dict) else value


def checked(body: dict[str, Any], path: str) -> dict[str, Any]:
    if body.get("apiVersion") != names.API_VERSION:
        raise InvalidSpec(
            f"--file: {path}: apiVersion must be {names.API_VERSION}, got {body.get('apiVersion')!r}"
        )
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise InvalidSpec(f"--file: {path}: metadata.name is missing")
    if not isinstance(body.get("spec"), dict):
        raise InvalidSpec(f"--file: {path}: spec is missing")
    return body


def refuse_slips(body: Mapping[str, Any]) -> None:
    """Fields that there are not, and values of another type: the API server would refuse them.

    Raises InvalidSpec with the first of them.
    """
    for words in slips(body["spec"], build_schema()["properties"]["spec"], "spec"):
        raise InvalidSpec(words)


def slips(value: object, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """
    >>> list(slips({"replicas": "3"}, build_schema()["properties"]["spec"], "spec"))
    ["spec.replicas: must be an integer, got '3'"]
    """
    kind = JSON_TYPES.get(schema.get("type", ""))
    if kind is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        yield f"{path}: must be {TYPE_WORDS[schema['type']]}, got {shortened(value)}"
        return
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from slips(one, schema.get("items", {}), f"{path}[{number}]")
    elif isinstance(value, dict) and "properties" in schema:
        yield from _slips_of_fields(value, schema["properties"], path)


def _slips_of_fields(value: Mapping[str, object], known: Mapping[str, Any], path: str) -> Iterator[str]:
    for field, one in value.items():
        if field in known:
            yield from slips(one, known[field], f"{path}.{field}")
            continue
        near = get_close_matches(str(field), known, n=1)
        meant = f"perhaps {near[0]} is meant" if near else f"there are {', '.join(sorted(known))}"
        yield f"{path}.{field}: is no field of an {names.KIND}; {meant}"
