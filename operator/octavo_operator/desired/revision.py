"""The value that all builders share: one immutable revision, as it is stored in a ControllerRevision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from octavo_operator.api.status import MemoryPlanStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One (model commit, engine image, arguments, plan), never changed once stored."""

    hash: str
    """Of the intent; also the label of its children and the end of their names."""
    hash_version: int
    intent: dict[str, Any]
    """The hashed fields themselves, so that a later operator can compare and a user can roll back."""
    commit: str
    image: str
    plan: MemoryPlanStatus
    """In the resource's own terms: core's plan may grow fields that old revisions lack."""
    manifest_digest: str = ""
    """Of the commit's files; empty where it was not known when the revision was made."""
    template: dict[str, Any]
    """The rendered pod template: an upgraded operator applies it as it is, so pods are not restarted."""


def revision_data(revision: Revision) -> dict[str, Any]:
    """`data` of the ControllerRevision."""
    return {
        "hash": revision.hash,
        "hashVersion": revision.hash_version,
        "intent": revision.intent,
        "commit": revision.commit,
        **({"manifestDigest": revision.manifest_digest} if revision.manifest_digest else {}),
        "image": revision.image,
        "plan": revision.plan.model_dump(mode="json", by_alias=True, exclude={"engine_reported_blocks"}),
        "template": revision.template,
    }


def parse_revision_data(data: dict[str, Any]) -> Revision:
    """The other way round; raises KeyError, TypeError or ValueError for what this operator cannot read."""
    return Revision(
        hash=data["hash"],
        hash_version=data["hashVersion"],
        intent=data["intent"],
        commit=data["commit"],
        manifest_digest=data.get("manifestDigest", ""),
        image=data["image"],
        plan=MemoryPlanStatus.model_validate(data["plan"]),
        template=data["template"],
    )
