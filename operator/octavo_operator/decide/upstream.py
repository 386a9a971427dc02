"""What a branch or tag stands for on the hub now, and how often to ask.

Asking is nobody's hurry: a branch that moved is news, not an error, and no answer changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from octavo import engine_contract as contract
from octavo_operator.api.spec import ModelSource
from octavo_operator.decide.conditions import format_time
from octavo_operator.decide.pinning import is_on_hub, is_pinned, is_tracked
from octavo_operator.decide.target import Refusal
from octavo_operator.desired.pins import Pin

LONGEST_BACKOFF_SECONDS: Final = 3600.0
SPREAD: Final = 0.2
"""Share of the interval that a question may come later, so that those of many services drift apart."""

HIDDEN_REASONS: Final = (contract.REASON_REPO_NOT_FOUND, contract.REASON_GATED)
"""A hub does not say that a private repository is there."""

Place = tuple[str, str]
"""Uri and revision: services that use the same words share one question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The last that the hub said of some words."""

    commit: str = ""
    """Kept when a later question had no answer; empty until there was one."""
    refusal: Refusal | None = None
    """Why the last question had no commit for an answer."""


def place_to_watch(model: ModelSource) -> Place | None:
    """None for words that cannot move, or that no hub knows."""
    if is_pinned(model) or not is_on_hub(model.uri):
        return None
    return model.uri, model.revision


def needs_scout(model: ModelSource, upstream: Upstream | None) -> bool:
    """A followed branch that the hub shows only to who has the token, which the operator may not read."""
    refusal = upstream.refusal if upstream is not None else None
    return (
        is_tracked(model)
        and model.credentials_secret_ref is not None
        and refusal is not None
        and refusal.reason in HIDDEN_REASONS
    )


def remember_answer(before: Upstream, answer: str | Refusal) -> Upstream:
    if isinstance(answer, Refusal):
        return replace(before, refusal=answer)
    return Upstream(commit=answer)


def is_news(before: Upstream, after: Upstream) -> bool:
    """Whether a service would say something else of it: outages come and go without a word."""
    return (before.commit, _lasting(before)) != (after.commit, _lasting(after))


def _lasting(upstream: Upstream) -> str:
    refusal = upstream.refusal
    return refusal.reason if refusal is not None and refusal.lasting else ""


def next_question_seconds(interval: float, failures: int, jitter: float) -> float:
    """Until the hub is asked again; `jitter` is from 0 to 1.

    >>> [next_question_seconds(300, failures, 0.0) for failures in (0, 1, 9)]
    [300.0, 600.0, 3600.0]
    """
    backed_off = min(interval * 2.0 ** min(failures, 30), max(interval, LONGEST_BACKOFF_SECONDS))
    return backed_off * (1 + SPREAD * jitter)


def follow(pin: Pin | None, upstream: Upstream | None, *, now: datetime) -> Pin | None:
    """The line of a followed branch: a new one where the branch has moved."""
    if pin is None or not pin.tracked or upstream is None or upstream.commit in ("", pin.commit):
        return pin
    return Pin(
        uri=pin.uri,
        revision=pin.revision,
        refresh_token=pin.refresh_token,
        commit=upstream.commit,
        resolved_at=format_time(now),
        tracked=True,
    )
