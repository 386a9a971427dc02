"""What the model hub says, asked from a person's machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from octavo.errors import InvalidSpec
from octavo_operator.api.spec import ModelSource
from octavo_operator.decide.pinning import is_on_hub, repository_of
from octavo_operator.decide.target import Refusal
from octavo_operator.shell.hub import Hub, parse_object
from octavo_operator.shell.hub_manifest import Manifest, Manifests


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAtHub:
    """A commit and its config.json."""

    commit: str
    config: Mapping[str, object]


def hub_endpoint() -> str:
    """As for every other program that speaks to a hub."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/")


async def resolve_words(endpoint: str, uri: str, revision: str) -> str | Refusal:
    hub = Hub(endpoint)
    try:
        return await hub.resolve(repository_of(uri), revision)
    finally:
        await hub.close()


async def look_up(endpoint: str, model: ModelSource) -> ModelAtHub | Refusal:
    """Only public repositories: whatever needs a token or a volume is read in the cluster alone."""
    if not is_on_hub(model.uri):
        raise InvalidSpec(f"spec.model.uri: {model.uri} is read in the cluster alone; give --model-config")
    hub = Hub(endpoint)
    try:
        commit = await hub.resolve(repository_of(model.uri), model.revision)
        if isinstance(commit, Refusal):
            return commit
        config = await hub.read_config(repository_of(model.uri), commit)
        return (
            config if isinstance(config, Refusal) else ModelAtHub(commit=commit, config=parse_object(config))
        )
    finally:
        await hub.close()


async def look_up_files(endpoint: str, uri: str, commit: str) -> Manifest | Refusal:
    """What stands for the commit's files, which every pod is told."""
    hub = Hub(endpoint)
    try:
        return await Manifests(hub).read(repository_of(uri), commit)
    finally:
        await hub.close()
