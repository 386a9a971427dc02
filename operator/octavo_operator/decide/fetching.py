"""How far the pods of a revision are with fetching their files, in words for status."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from octavo.units import format_bytes
from octavo_operator.api import names
from octavo_operator.decide.conditions import READY, RECONCILING, Finding
from octavo_operator.decide.observed import PodView

ON_ITS_WAY: Final = frozenset({"RolloutProgressing", "NoReadyReplica"})
"""Reasons of Ready that say only that somebody must wait."""
MAX_TROUBLE_LENGTH: Final = 300
"""The text comes from a pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchReading:
    """How far one pod is."""

    bytes_done: int
    bytes_total: int
    trouble: str = ""
    """Why nothing comes at the moment."""


def fetching_pods(pods: Iterable[PodView]) -> tuple[PodView, ...]:
    """Those that fetch now, and have an address to be asked at."""
    return tuple(pod for pod in pods if pod.address and not pod.ready and _is_fetching(pod))


def _is_fetching(pod: PodView) -> bool:
    return any(one.name == names.CONTAINER_FETCH and one.running for one in pod.containers)


def parse_reading(text: str) -> FetchReading | None:
    """None for anything that is not what our own fetch container says."""
    try:
        said = json.loads(text)
        done, total, trouble = said["bytes_done"], said["bytes_total"], said.get("trouble", "")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if type(done) is not int or type(total) is not int or not 0 <= done <= total:
        return None
    trouble = trouble[:MAX_TROUBLE_LENGTH] if isinstance(trouble, str) else ""
    return FetchReading(bytes_done=done, bytes_total=total, trouble=trouble)


def describe_fetch(readings: Iterable[FetchReading]) -> str:
    """The one that has most to go, since all must be through, and what some pod waits for; or nothing.

    >>> describe_fetch([FetchReading(bytes_done=2**30, bytes_total=2**34, trouble="the hub answers 503")])
    'fetching 1.00 GiB of 16.00 GiB (6 %); the hub answers 503'
    """
    seen = list(readings)
    trouble = next((one.trouble for one in seen if one.trouble), "")
    return "; ".join(words for words in (_describe_slowest(seen), trouble) if words)


def _describe_slowest(seen: list[FetchReading]) -> str:
    known = [one for one in seen if one.bytes_total]
    if not known:
        return ""
    last = min(known, key=lambda one: one.bytes_done / one.bytes_total)
    percent = 100 * last.bytes_done // last.bytes_total
    words = f"fetching {format_bytes(last.bytes_done)} of {format_bytes(last.bytes_total)} ({percent} %)"
    return f"{words} on the slowest of {len(known)} pods" if len(known) > 1 else words


def tell_fetch(findings: Iterable[Finding], words: str) -> tuple[Finding, ...]:
    """Ready and Reconciling say what is being waited for, where they say only that somebody must wait."""
    return tuple(_with_words(finding, words) for finding in findings)


def _with_words(finding: Finding, words: str) -> Finding:
    waits = finding.reason in ON_ITS_WAY and finding.message
    if not words or not waits or finding.type not in (READY, RECONCILING):
        return finding
    return replace(finding, message=f"{finding.message}; {words}")
