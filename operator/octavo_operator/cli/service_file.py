"""An InferenceService from a file, as kubectl would read it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from octavo.errors import InvalidSpec
from octavo_operator.api import names


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
