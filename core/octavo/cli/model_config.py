"""Where `octavo plan` reads a model's configuration: a file, a folder, or a hub.

The hub is read with the standard library alone, so that `octavo` needs nothing installed. It honours
`HF_ENDPOINT` and `HF_TOKEN`, and never sends the token to another host than the endpoint's.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote, urlsplit

from octavo.errors import InvalidConfig, InvalidSpec, OctavoError

CONFIG_FILE: Final = "config.json"
MODELOPT_FILE: Final = "hf_quant_config.json"
"""Where ModelOpt states a quantization that `config.json` does not mention."""
DEFAULT_ENDPOINT: Final = "https://huggingface.co"
TIMEOUT_SECONDS: Final = 15
MOST_BYTES: Final = 16 << 20
"""No configuration is larger; a larger answer is something else."""

_URI = re.compile(r"hf://([A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?)")
_REVISION = re.compile(r"[\w][\w./-]{0,199}")


class HubUnavailable(OctavoError):
    """The hub could not be reached, or does not have or give what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConfig:
    """A configuration, and which one it is."""

    values: Mapping[str, object]
    source: str
    commit: str | None = None
    """What the hub resolved the revision to."""


def read_file(path: Path) -> ReadConfig:
    """A `config.json`; ModelOpt's file beside it is taken in."""
    values = parse_json(_read_bytes(path), str(path))
    beside = path.with_name(MODELOPT_FILE)
    if "quantization_config" not in values and beside.is_file():
        values = with_modelopt(values, parse_json(_read_bytes(beside), str(beside)))
    return ReadConfig(values=values, source=str(path))


def read_directory(path: Path) -> ReadConfig:
    if path.is_file():
        return read_file(path)
    if not (path / CONFIG_FILE).is_file():
        raise InvalidSpec(f"{path}: holds no {CONFIG_FILE}")
    return read_file(path / CONFIG_FILE)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidSpec(f"{path}: {error.strerror}") from error


def parse_json(content: bytes, source: str) -> dict[str, object]:
    """A JSON object, or what is wrong with it."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{source}: is no JSON that can be read: {error}") from error
    if not isinstance(values, dict):
        raise InvalidConfig(f"{source}: must hold a JSON object")
    return values


def with_modelopt(values: dict[str, object], modelopt: Mapping[str, object]) -> dict[str, object]:
    return values | {"quantization_config": {"quant_method": "modelopt", **modelopt}}


def read_hub(uri: str, revision: str) -> ReadConfig:
    """The configuration of `hf://org/name` at a branch, tag or commit."""
    match = _URI.fullmatch(uri)
    if match is None:
        raise InvalidSpec(f"model: {uri!r} is no hf://organization/name")
    if not _REVISION.fullmatch(revision) or ".." in revision:
        raise InvalidSpec(f"revision: {revision!r} is no branch, tag or commit")
    content, commit = _resolve(match[1], revision, CONFIG_FILE)
    values = parse_json(content, f"{uri}@{revision}/{CONFIG_FILE}")
    if "quantization_config" not in values:
        values = _with_modelopt_of_hub(values, match[1], commit or revision)
    return ReadConfig(values=values, source=f"{uri}@{revision}", commit=commit)


def _with_modelopt_of_hub(values: dict[str, object], repository: str, revision: str) -> dict[str, object]:
    try:
        content, _ = _resolve(repository, revision, MODELOPT_FILE)
    except HubUnavailable:  # most repositories have none
        return values
    return with_modelopt(values, parse_json(content, f"{repository}/{MODELOPT_FILE}"))


def _resolve(repository: str, revision: str, path: str) -> tuple[bytes, str | None]:
    """One file's content, and the commit that the hub names."""
    endpoint = os.environ.get("HF_ENDPOINT", DEFAULT_ENDPOINT).rstrip("/")
    if urlsplit(endpoint).scheme not in ("http", "https"):
        raise InvalidSpec(f"HF_ENDPOINT: {endpoint!r} is no http or https address")
    url = f"{endpoint}/{repository}/resolve/{quote(revision, safe='')}/{path}"
    request = urllib.request.Request(url, headers={"User-Agent": "octavo"})
    token = os.environ.get("HF_TOKEN")
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token.strip()}")
    redirects = _Redirects()
    try:
        with urllib.request.build_opener(redirects).open(request, timeout=TIMEOUT_SECONDS) as answer:
            content = answer.read(MOST_BYTES + 1)
            commit = redirects.commit or answer.headers.get("X-Repo-Commit")
    except urllib.error.HTTPError as error:
        raise HubUnavailable(_explained(error, repository, revision, path)) from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise HubUnavailable(f"{endpoint}: cannot be reached: {reason}") from error
    if len(content) > MOST_BYTES:
        raise InvalidConfig(f"{url}: is larger than {MOST_BYTES >> 20} MiB")
    return content, commit


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, and remembers the commit that only the first answer names."""

    commit: str | None = None

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> urllib.request.Request | None:
        self.commit = self.commit or headers.get("X-Repo-Commit")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def _explained(error: urllib.error.HTTPError, repository: str, revision: str, path: str) -> str:
    """What the hub's error code means to a user, and what to do."""
    code = error.headers.get("X-Error-Code", "")
    words = {
        "RepoNotFound": f"{repository}: no such repository, or it is private: set HF_TOKEN",
        "RevisionNotFound": f"{repository}: no branch, tag or commit {revision!r}",
        "EntryNotFound": f"{repository}@{revision}: holds no {path}",
        "GatedRepo": f"{repository}: access must be granted on the hub first; then set HF_TOKEN",
    }
    by_status = {
        401: f"{repository}: no such repository, or it is private: set HF_TOKEN",
        403: f"{repository}: the token gives no access",
        404: f"{repository}@{revision}: holds no {path}",
    }
    return words.get(code) or by_status.get(error.code) or f"{repository}: the hub answered {error.code}"
