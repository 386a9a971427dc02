"""An InferenceService from a file, as kubectl would read it: strictly, so that a slip is no field."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from octavo.errors import InvalidSpec
from octavo_operator.api import names
from octavo_operator.api.crd import build_schema


def add_file_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--file", metavar="FILE", required=True, help="an InferenceService; - reads standard input"
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
    return checked(found[0], path)


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


def refuse_unknown_fields(body: Mapping[str, Any]) -> None:
    """What the API server would refuse; raises InvalidSpec with the field that was perhaps meant."""
    for path, known in unknown_fields(body["spec"], build_schema()["properties"]["spec"], "spec"):
        near = get_close_matches(path.rpartition(".")[2], known, n=1)
        meant = f"; perhaps {near[0]} is meant" if near else f"; there are {', '.join(known)}"
        raise InvalidSpec(f"{path}: is no field of an {names.KIND}{meant}")


def unknown_fields(value: object, schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, list[str]]]:
    """Path of each, and the fields that there are in its place."""
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from unknown_fields(one, schema.get("items", {}), f"{path}[{number}]")
    known = schema.get("properties")
    if not isinstance(value, Mapping) or known is None or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    for field, one in value.items():
        if field in known:
            yield from unknown_fields(one, known[field], f"{path}.{field}")
        else:
            yield f"{path}.{field}", sorted(known)
