"""What to bring where: the arguments of a fetch, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from octavo import engine_contract as contract
from octavo.errors import InvalidSpec
from octavo.model_source import CONTENT_COMMIT, HubSource, ModelSource, is_commit_of, parse_model_uri


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOrder:
    """A model by name and commit, and the folder that the engine will find it in."""

    uri: str
    source: ModelSource
    commit: str
    folder: Path
    mount: Path | None = None
    """Where a volume or an image is mounted; None for a hub's model."""
    manifest_digest: str = ""
    """What the commit was resolved to; empty: whatever the hub lists for it."""
    thorough: bool = False
    """Look at every byte of files that are there, not at sizes and times."""

    @property
    def pinned_digest(self) -> str:
        """Of the files, where it is known: of a volume or an image it is the commit."""
        return self.manifest_digest or ("" if isinstance(self.source, HubSource) else self.commit)

    @property
    def origin(self) -> str:
        """The name that the record keeps."""
        return self.source.repository if isinstance(self.source, HubSource) else self.uri


def parse_order(
    uri: str,
    revision: str,
    folder: Path,
    *,
    mount: Path | None = None,
    manifest_digest: str = "",
    thorough: bool = False,
) -> FetchOrder:
    """Check the arguments; raises InvalidSpec."""
    source = parse_model_uri(uri)
    _check_commit(source, revision)
    check_mount(source, mount)
    if manifest_digest and not CONTENT_COMMIT.fullmatch(manifest_digest):
        raise InvalidSpec(f"{contract.FLAG_MANIFEST_DIGEST} {manifest_digest}: must be sha256:…")
    return FetchOrder(
        uri=uri,
        source=source,
        commit=revision,
        folder=folder.absolute(),
        mount=mount,
        manifest_digest=manifest_digest,
        thorough=thorough,
    )


def _check_commit(source: ModelSource, revision: str) -> None:
    if is_commit_of(source, revision):
        return
    if isinstance(source, HubSource):
        raise InvalidSpec(
            f"--revision {revision}: must be a full commit of 40 hex digits; a branch or tag may move"
        )
    raise InvalidSpec(
        f"--revision {revision}: must be the manifest digest sha256:… of the files, which "
        "`octavo-engine resolve` prints"
    )


def check_mount(source: ModelSource, mount: Path | None) -> None:
    """Volumes and images need one and a hub has none; raises InvalidSpec."""
    if isinstance(source, HubSource) and mount is not None:
        raise InvalidSpec(f"{contract.FLAG_SOURCE} {mount}: a hub's model is not mounted; leave it out")
    if not isinstance(source, HubSource) and mount is None:
        raise InvalidSpec(f"{contract.FLAG_SOURCE}: missing; give the folder where the volume is mounted")
