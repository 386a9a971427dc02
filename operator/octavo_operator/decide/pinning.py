"""From words to a commit: a line that was resolved once stays resolved, unless its branch is followed.

The ledger holds *fixed* lines, of which the first answer stands, and *tracked* ones, of which the latest
does. They are kept apart, so that words which were fixed once give the same commit after any time of
following.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from octavo import engine_contract as contract
from octavo.model_report import ModelReport
from octavo.model_source import GIT_COMMIT, HubSource, is_commit_of, parse_model_uri
from octavo_operator.api.spec import ModelSource
from octavo_operator.decide.target import Refusal
from octavo_operator.desired.pins import MAX_PINS, Pin

TRACK: Final = "Track"
REQUIRE_PINNED: Final = "RequirePinned"
MAX_TRACKED: Final = 100
"""Lines of followed branches: they never push out what was fixed."""

UNPINNED: Final = "RevisionNotPinned"
CANNOT_TRACK: Final = "CannotTrack"


def is_commit(revision: str) -> bool:
    return GIT_COMMIT.fullmatch(revision) is not None


def is_on_hub(uri: str) -> bool:
    return isinstance(parse_model_uri(uri), HubSource)


def is_pinned(model: ModelSource) -> bool:
    """The words name the files themselves, so that they mean the same anywhere and for ever."""
    return is_commit_of(parse_model_uri(model.uri), model.revision)


def is_tracked(model: ModelSource) -> bool:
    return model.revision_policy == TRACK and not is_pinned(model)


def refuse_words(model: ModelSource, pin: Pin | None) -> Refusal | None:
    """What the policy has against the words; the API server says the same of new objects.

    | policy        | words                     | answer              |
    |---------------|---------------------------|---------------------|
    | RequirePinned | a branch, a tag, a folder | `RevisionNotPinned` |
    | Track         | no place on the hub       | `CannotTrack`       |
    | otherwise     | any                       | nothing             |
    """
    if model.revision_policy == REQUIRE_PINNED and not is_pinned(model):
        form = "a commit of 40 hexadecimal digits" if is_on_hub(model.uri) else "sha256:<digest of the files>"
        known = f"; so far it was {pin.commit}" if pin is not None else ""
        message = (
            f"spec.model.revision: {model.revision!r} can come to mean other weights, and revisionPolicy is "
            f"{REQUIRE_PINNED}; write {form} (`octavo pin` prints it{known})"
        )
        return Refusal(reason=UNPINNED, message=message)
    if is_tracked(model) and not is_on_hub(model.uri):
        message = (
            f"spec.model.revisionPolicy: {TRACK} follows a branch on the hub, and {model.uri} has none; use "
            "ResolveOnce and change spec.model.refreshToken to look again"
        )
        return Refusal(reason=CANNOT_TRACK, message=message)
    return None


def find_pin(pins: Iterable[Pin], model: ModelSource) -> Pin | None:
    """
    | policy   | the commit                                                                    |
    |----------|-------------------------------------------------------------------------------|
    | Track    | the latest that was followed to; else the fixed one, followed from now on     |
    | any else | the one that was fixed first; else the latest followed to, fixed from now on  |
    """
    words = (model.uri, model.revision, model.refresh_token)
    lines = [pin for pin in pins if pin.words == words]
    fixed = next((pin for pin in lines if not pin.tracked), None)
    followed = next((pin for pin in reversed(lines) if pin.tracked), None)
    tracked = is_tracked(model)
    found = (followed or fixed) if tracked else (fixed or followed)
    return replace(found, tracked=tracked) if found is not None else None


def add_pin(pins: tuple[Pin, ...], pin: Pin) -> tuple[Pin, ...]:
    """A fixed line never changes its commit; a branch gets a line when it has moved."""
    lines = [known for known in pins if known.words == pin.words and known.tracked == pin.tracked]
    stands = next(iter(lines[-1:] if pin.tracked else lines[:1]), None)
    if stands is None or (pin.tracked and stands.commit != pin.commit):
        return forget_oldest((*pins, pin))
    if stands.commit != pin.commit or stands.manifest_digest:
        return pins
    learned = with_manifest(stands, pin.manifest_digest, pin.size_bytes)
    return tuple(learned if known is stands else known for known in pins)


def forget_oldest(pins: tuple[Pin, ...]) -> tuple[Pin, ...]:
    """At most MAX_PINS lines, and of them at most MAX_TRACKED tracked ones."""
    tracked = [number for number, pin in enumerate(pins) if pin.tracked]
    dropped = set(tracked[: max(0, len(tracked) - MAX_TRACKED)])
    return tuple(pin for number, pin in enumerate(pins) if number not in dropped)[-MAX_PINS:]


def with_manifest(pin: Pin, digest: str, size_bytes: int) -> Pin:
    """What was learned of the commit's files stays as it was first seen."""
    if pin.manifest_digest:
        return pin
    return replace(pin, manifest_digest=digest, size_bytes=size_bytes)


def refuse_report(pin: Pin, report: ModelReport) -> Refusal | None:
    """A commit has one set of files: another one under its name is refused."""
    if report.commit != pin.commit:
        message = f"{pin.uri} at {pin.commit}: what is there now is {report.commit}"
    elif pin.manifest_digest not in ("", report.manifest_digest):
        message = (
            f"{pin.uri} at {pin.commit}: its files were {pin.manifest_digest} when they were first seen, and "
            f"are {report.manifest_digest} now"
        )
    else:
        return None
    return Refusal(reason=contract.REASON_DIGEST_MISMATCH, message=message, at_hub=True)


def repository_of(uri: str) -> str:
    """
    >>> repository_of("hf://Qwen/Qwen3-8B")
    'Qwen/Qwen3-8B'
    """
    return uri.removeprefix("hf://")
