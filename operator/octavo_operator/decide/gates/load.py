"""The load gate: every ready pod of the candidate has loaded the revision's commit, and those files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from octavo_operator.api.names import SHORT_REVISION_LENGTH
from octavo_operator.decide.rollout.values import Verdict
from octavo_operator.desired.revision import Revision

REASON_FAILED: Final = "LoadGateFailed"
REASON_UNKNOWN: Final = "LoadUnknown"
DIGEST_PREFIX: Final = "sha256:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What an engine says that it has loaded."""

    commit: str
    manifest_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """An engine that did not say."""

    why: str


def judge_load(revision: Revision, answers: Mapping[str, Loaded | Silent]) -> Verdict:
    """`answers` are by pod, of those that are ready.

    | any pod                               | verdict                 |
    |---------------------------------------|-------------------------|
    | loaded another commit, or other files | failed                  |
    | did not say                           | pending                 |
    | (all loaded what the revision is)     | passed                  |
    """
    for pod, answer in sorted(answers.items()):
        wrong = _wrong(revision, answer) if isinstance(answer, Loaded) else ""
        if wrong:
            message = f"Pod {pod} loaded {wrong}"
            return Verdict(state="Failed", reason=REASON_FAILED, message=message)
    for pod, answer in sorted(answers.items()):
        if isinstance(answer, Silent):
            message = (
                f"Pod {pod} does not say what it has loaded ({answer.why}); the operator must be able to "
                "reach pods, or spec.rollout.gate.load be false"
            )
            return Verdict(state="Pending", reason=REASON_UNKNOWN, message=message)
    return Verdict(state="Passed", reason="GatePassed", message=_evidence(answers))


def _wrong(revision: Revision, loaded: Loaded) -> str:
    if loaded.commit != revision.commit:
        return f"commit {loaded.commit or '(none)'}, the revision is {revision.commit}"
    wanted = _bare(revision.manifest_digest)
    if wanted and _bare(loaded.manifest_digest) != wanted:
        told = loaded.manifest_digest or "nobody vouches for"
        return f"files {told}, the revision's are {revision.manifest_digest}"
    return ""


def _bare(digest: str) -> str:
    return digest.removeprefix(DIGEST_PREFIX)


def _evidence(answers: Mapping[str, Loaded | Silent]) -> str:
    loaded = [answer for answer in answers.values() if isinstance(answer, Loaded)]
    commit = loaded[0].commit.removeprefix(DIGEST_PREFIX)[:SHORT_REVISION_LENGTH]
    files = _bare(loaded[0].manifest_digest)[:SHORT_REVISION_LENGTH]
    seen = f"{len(loaded)} {'pods' if len(loaded) > 1 else 'pod'} loaded commit {commit}"
    return f"{seen}, files {files}" if files else seen
