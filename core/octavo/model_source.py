"""Where a model's files come from, as `spec.model.uri` names it, and where a pod finds them.

| URI                     | source                                        | its commit                    |
|-------------------------|-----------------------------------------------|-------------------------------|
| `hf://org/name`         | a repository of the model hub                 | git's, 40 hex digits          |
| `pvc://claim/some/path` | a folder of a volume that the claim is bound to | the files' manifest digest  |
| `oci://host/name:tag`   | an image that is mounted as a volume          | the files' manifest digest    |
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from octavo.engine_contract import MODELS_ROOT
from octavo.errors import InvalidSpec

HUB_SCHEME: Final = "hf"
VOLUME_SCHEME: Final = "pvc"
IMAGE_SCHEME: Final = "oci"

MAX_URI_LENGTH: Final = 1024

GIT_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
CONTENT_COMMIT: Final = re.compile(r"sha256:[0-9a-f]{64}")

_REPOSITORY: Final = re.compile(r"[a-z0-9][\w.-]*(/[a-z0-9][\w.-]*)?", re.ASCII | re.IGNORECASE)
_CLAIM: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_IMAGE: Final = re.compile(
    r"[a-z0-9][a-z0-9.-]*(:\d{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSource:
    """A repository of a model hub."""

    repository: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSource:
    """A folder of a persistent volume; an empty path is the volume's top."""

    claim: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSource:
    """An OCI image, or an artifact, whose files are the model's."""

    reference: str


ModelSource = HubSource | VolumeSource | ImageSource


def parse_model_uri(uri: str) -> ModelSource:
    """Raises InvalidSpec.

    >>> parse_model_uri("pvc://models/qwen/8b")
    VolumeSource(claim='models', path='qwen/8b')
    """
    if len(uri) > MAX_URI_LENGTH:
        raise InvalidSpec(f"uri {uri[:60]!r}…: is longer than {MAX_URI_LENGTH} characters")
    scheme, separator, rest = uri.partition("://")
    parse = _PARSERS.get(scheme if separator else "")
    if parse is None:
        raise InvalidSpec(f"uri {uri!r:.200}: must begin with hf://, pvc:// or oci://")
    return parse(rest)


def _parse_hub(rest: str) -> HubSource:
    if not _REPOSITORY.fullmatch(rest):
        raise InvalidSpec(f"uri hf://{rest:.200}: must be hf://organization/name")
    return HubSource(repository=rest)


def _parse_volume(rest: str) -> VolumeSource:
    claim, _, path = rest.partition("/")
    if not _CLAIM.fullmatch(claim):
        raise InvalidSpec(f"uri pvc://{rest:.200}: must be pvc://claim/path, with a claim's name")
    if any(part in ("", ".", "..") for part in path.split("/")) and path:
        raise InvalidSpec(f"uri pvc://{rest:.200}: its path must be plain, without empty parts, . and ..")
    if "\0" in path:
        raise InvalidSpec("uri pvc://…: its path has a null character")
    return VolumeSource(claim=claim, path=path)


def _parse_image(rest: str) -> ImageSource:
    if not _IMAGE.fullmatch(rest):
        raise InvalidSpec(f"uri oci://{rest:.200}: must be oci://registry/name:tag or @sha256:…")
    return ImageSource(reference=rest)


_PARSERS: Final[dict[str, Callable[[str], ModelSource]]] = {
    HUB_SCHEME: _parse_hub,
    VOLUME_SCHEME: _parse_volume,
    IMAGE_SCHEME: _parse_image,
}


def is_commit_of(source: ModelSource, revision: str) -> bool:
    """Whether the words are pinned: they can only ever mean these bytes.

    >>> is_commit_of(HubSource(repository="org/name"), "main")
    False
    """
    pattern = GIT_COMMIT if isinstance(source, HubSource) else CONTENT_COMMIT
    return pattern.fullmatch(revision) is not None


def model_folder(commit: str) -> str:
    """The folder of a pod's model volume in which the engine finds a model, wherever its files come from.

    >>> model_folder("sha256:12")
    '/models/sha256-12'
    """
    return f"{MODELS_ROOT}/{commit.replace(':', '-')}"
