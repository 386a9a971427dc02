"""The revisions of one service as a person is shown them, read from its ControllerRevisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from octavo.errors import InvalidSpec
from octavo_operator.api import names
from octavo_operator.desired.revision import Revision, parse_revision_data

Body = Mapping[str, Any]
INVALID_SPEC: Final = InvalidSpec.__name__
"""The reason that the operator gives where it cannot read a spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    """One revision of history."""

    number: int
    hash: str
    words: str
    commit: str
    image: str
    created_at: str
    proven_at: str
    roles: tuple[str, ...]
    """What it is now: wanted, serving, last known good."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def read_revisions(bodies: Sequence[Body]) -> list[tuple[Body, Revision]]:
    """Those that this version can read, oldest first."""
    found = []
    for body in bodies:
        try:
            found.append((body, parse_revision_data(dict(body["data"]))))
        except (KeyError, TypeError, ValueError):
            continue
    return found


def history_lines(service: Body, bodies: Sequence[Body]) -> list[HistoryLine]:
    return [_line(service.get("status", {}), body, revision) for body, revision in read_revisions(bodies)]


def _line(status: Body, body: Body, revision: Revision) -> HistoryLine:
    model = revision.intent["model"]
    metadata = body["metadata"]
    return HistoryLine(
        number=body["revision"],
        hash=revision.hash,
        words=f"{model['uri']} at {model.get('revision', 'main')}",
        commit=revision.commit,
        image=revision.image,
        created_at=metadata.get("creationTimestamp", ""),
        proven_at=metadata.get("annotations", {}).get(names.ANNOTATION_PROVEN_AT, ""),
        roles=roles_of(status, revision.hash),
    )


def roles_of(status: Body, revision: str) -> tuple[str, ...]:
    """
    >>> roles_of({"currentRevision": "a", "updateRevision": "b"}, "a")
    ('serving',)
    """
    good = (status.get("lastKnownGood") or {}).get("revision")
    named = {
        "wanted": status.get("updateRevision"),
        "serving": status.get("currentRevision"),
        "last known good": good,
    }
    return tuple(role for role, one in named.items() if one == revision)


def find_revision(lines: Sequence[HistoryLine], wanted: str) -> HistoryLine | None:
    """By its number, or by its hash or the beginning of it.

    Digits alone are a number first: hashes are ten hexadecimal digits, numbers are short.
    """
    by_number = [line for line in lines if str(line.number) == wanted]
    if by_number:
        return by_number[0]
    alike = [line for line in lines if wanted and line.hash.startswith(wanted)]
    return alike[0] if len(alike) == 1 else None


def asked_revision(service: Body) -> str | None:
    """What spec asks for; None while the operator has not seen the latest edit, or cannot read it.

    >>> status = {"observedGeneration": 2, "updateRevision": "a"}
    >>> asked_revision({"metadata": {"generation": 2}, "status": status})
    'a'
    """
    status = service.get("status", {})
    stalled: Body = next((one for one in status.get("conditions", ()) if one["type"] == "Stalled"), {})
    is_unread = stalled.get("status") == "True" and stalled.get("reason") == INVALID_SPEC
    if is_unread or status.get("observedGeneration") != service["metadata"]["generation"]:
        return None
    asked: str | None = status.get("updateRevision")
    return asked


def previous_good(lines: Sequence[HistoryLine], asked: str | None) -> HistoryLine | None:
    """Where a rollback without a number goes: what serves if spec asks for something else that is not good,
    else the proven revision before the one that spec asks for."""
    proven = [line for line in lines if line.proven_at and line.hash != asked]
    serving = next((line for line in proven if "serving" in line.roles), None)
    return serving or max(proven, key=lambda line: (line.proven_at, line.number), default=None)
