"""Where a pod gets a model's files from and keeps them: its volumes, mounts and the flags that name them.

| source, cache          | volume `models`     | volume `source`          | volume `credentials`    |
|------------------------|---------------------|--------------------------|-------------------------|
| `hf://`                | emptyDir            | –                        | the Secret, if named    |
| `hf://`, claim named   | the claim           | –                        | the Secret, if named    |
| `pvc://claim/path`     | emptyDir: links     | the claim, read-only     | –                       |
| `oci://image`          | emptyDir: links     | the image, read-only     | –                       |
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, Final

from octavo import engine_contract as contract
from octavo.model_source import HubSource, ImageSource, VolumeSource, parse_model_uri
from octavo_operator.api.spec import ModelSource

MODELS_VOLUME: Final = "models"
SOURCE_VOLUME: Final = "source"
CREDENTIALS_VOLUME: Final = "credentials"
TOKEN_KEY: Final = "token"
TOKEN_PATH: Final = PurePosixPath(contract.TOKEN_FILE)
GROUP_READABLE: Final = 0o440

Volume = dict[str, Any]


def build_model_volumes(model: ModelSource) -> list[Volume]:
    """Of an engine's pod."""
    return [build_models_volume(model), *build_source_volumes(model)]


def build_models_volume(model: ModelSource) -> Volume:
    """A commit has a folder of its own: services and revisions can share a claim."""
    claim = model.cache.persistent_volume_claim
    if claim and isinstance(parse_model_uri(model.uri), HubSource):
        return {"name": MODELS_VOLUME, "persistentVolumeClaim": {"claimName": claim}}
    return {"name": MODELS_VOLUME, "emptyDir": {}}


def build_source_volumes(model: ModelSource) -> list[Volume]:
    """What a resolver mounts as well: it looks up the very files that are served."""
    source = parse_model_uri(model.uri)
    match source:
        case VolumeSource():
            claim = {"claimName": source.claim, "readOnly": True}
            return [{"name": SOURCE_VOLUME, "persistentVolumeClaim": claim}]
        case ImageSource():
            image = {"reference": source.reference, "pullPolicy": "IfNotPresent"}
            return [{"name": SOURCE_VOLUME, "image": image}]
        case HubSource():
            secret = model.credentials_secret_ref
            return [build_credentials_volume(secret.name)] if secret is not None else []


def build_credentials_volume(secret: str) -> Volume:
    """Optional, because a pod whose Secret is missing would wait without a word; so the engine says it."""
    return {
        "name": CREDENTIALS_VOLUME,
        "secret": {
            "secretName": secret,
            "items": [{"key": TOKEN_KEY, "path": TOKEN_PATH.name}],
            "defaultMode": GROUP_READABLE,
            "optional": True,
        },
    }


def build_source_mounts(model: ModelSource) -> list[dict[str, Any]]:
    """Of whoever reads the source: fetch and resolver."""
    places = {SOURCE_VOLUME: contract.SOURCE_ROOT, CREDENTIALS_VOLUME: str(TOKEN_PATH.parent)}
    return [
        {"name": volume["name"], "mountPath": places[volume["name"]], "readOnly": True}
        for volume in build_source_volumes(model)
    ]


def build_linked_mounts(model: ModelSource) -> list[dict[str, Any]]:
    """Of the engine: what the links in its model folder lead to, and no token."""
    return [mount for mount in build_source_mounts(model) if mount["name"] == SOURCE_VOLUME]


def build_source_flags(model: ModelSource) -> list[str]:
    """Of `octavo-engine fetch` and `resolve`."""
    if not isinstance(parse_model_uri(model.uri), HubSource):
        return [contract.FLAG_SOURCE, contract.SOURCE_ROOT]
    if model.credentials_secret_ref is not None:
        return [contract.FLAG_TOKEN_FILE, contract.TOKEN_FILE]
    return []
