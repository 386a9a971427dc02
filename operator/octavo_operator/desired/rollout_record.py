"""What is remembered of a revision's rollout, as one annotation of its ControllerRevision.

`data` of a ControllerRevision can never change; how far its rollout has come is learned later. The
operator keeps nothing of it in memory, so that a restart in the middle goes on where it was.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRollout:
    """Why the revision was given up. It is not tried again while spec goes on asking for it."""

    reason: str
    message: str
    terms: str
    """The words of spec.rollout that it failed under; others are another try."""
    at: int
    """Seconds since the epoch."""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRecord:
    """How far the rollout of one revision has come. Times are whole seconds since the epoch."""

    exchange: bool = False
    """Its pods take the places of the old ones: there was no room for both."""
    step: int = 0
    """Of spec.rollout.canarySteps, from 0; their number when all are done."""
    step_at: int | None = None
    """When the step's share was reached."""
    passed: str = ""
    """What the load and quality gates saw when they let it pass; empty before."""
    shared_passed: str = ""
    """What the SLO gate saw at the end of the latest step."""
    ready: int = 0
    """Most pods that were ready at once."""
    progress_at: int | None = None
    """When it last came further."""
    weight: int = 0
    """Percent of the requests that it was last given."""
    weight_at: int | None = None
    """Since when."""
    failed: FailedRollout | None = None


EMPTY_RECORD = RolloutRecord()


def render_record(record: RolloutRecord) -> str:
    """Only what differs from an empty one.

    >>> render_record(RolloutRecord(step=1))
    '{"step":1}'
    """
    empty = asdict(EMPTY_RECORD)
    told = {key: value for key, value in asdict(record).items() if value != empty[key]}
    return json.dumps(told, sort_keys=True, separators=(",", ":"))


def parse_record(text: str | None) -> RolloutRecord:
    """What cannot be read counts as nothing remembered: the rollout begins anew, which harms nobody.

    >>> parse_record('{"step":1}').step, parse_record("by hand").step
    (1, 0)
    """
    try:
        raw = json.loads(text or "{}")
        failed = raw.pop("failed", None)
        record = RolloutRecord(**raw, failed=FailedRollout(**failed) if failed else None)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return EMPTY_RECORD
    return record if _is_sound(record) else EMPTY_RECORD


def _is_sound(record: RolloutRecord) -> bool:
    numbers = (record.step, record.ready, record.weight)
    times = (record.step_at, record.progress_at, record.weight_at)
    return (
        all(_is_count(number) for number in numbers)
        and all(time is None or _is_count(time) for time in times)
        and isinstance(record.exchange, bool)
        and isinstance(record.passed, str)
        and isinstance(record.shared_passed, str)
        and (record.failed is None or _is_sound_failure(record.failed))
    )


def _is_sound_failure(failed: FailedRollout) -> bool:
    words = (failed.reason, failed.message, failed.terms)
    code = failed.exit_code
    return (
        all(isinstance(word, str) for word in words) and _is_count(failed.at) and isinstance(code, int | None)
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
