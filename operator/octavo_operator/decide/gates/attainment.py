"""The SLO gate: does the candidate answer as many of its requests in time as the last known good does?

Both are counted over the same window, one step of a canary. Less attainment alone fails nobody: with few
requests it is often chance. It must also be very unlikely that both are alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from octavo_operator.api.spec import ServiceLevelObjective, SloGate
from octavo_operator.decide.gates.fisher import fisher_p
from octavo_operator.decide.rollout.values import Verdict

SIGNIFICANCE: Final = 0.01
REASON_FAILED: Final = "SloGateFailed"
REASON_INCONCLUSIVE: Final = "GateInconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attained:
    """Requests, and those of them within the objective."""

    first_tokens: int = 0
    """Requests that got a first token."""
    first_in_time: int = 0
    paced: int = 0
    """Requests that ended with more than one token."""
    paced_in_time: int = 0

    def __add__(self, other: Attained) -> Attained:
        return Attained(
            first_tokens=self.first_tokens + other.first_tokens,
            first_in_time=self.first_in_time + other.first_in_time,
            paced=self.paced + other.paced,
            paced_in_time=self.paced_in_time + other.paced_in_time,
        )

    def since(self, before: Attained) -> Attained:
        """What came after; an engine that counts less than before has started anew."""
        if self.first_tokens < before.first_tokens or self.paced < before.paced:
            return self
        return Attained(
            first_tokens=self.first_tokens - before.first_tokens,
            first_in_time=max(0, self.first_in_time - before.first_in_time),
            paced=self.paced - before.paced,
            paced_in_time=max(0, self.paced_in_time - before.paced_in_time),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What both revisions' pods counted since the window began."""

    since: float
    began: Mapping[str, Attained] = field(default_factory=dict)
    """By pod, when it was first seen in the window; one that started in it began at nothing."""
    latest: Mapping[str, Attained] = field(default_factory=dict)
    revision_of: Mapping[str, str] = field(default_factory=dict)

    def of(self, revision: str) -> Attained:
        counts = (
            self.latest[pod].since(self.began[pod])
            for pod, its_revision in self.revision_of.items()
            if its_revision == revision
        )
        return sum(counts, Attained())


def open_window(now: float, readings: Mapping[str, tuple[str, Attained]]) -> Window:
    """From the first counts, by pod, each with its revision."""
    counts = {pod: attained for pod, (_, attained) in readings.items()}
    revisions = {pod: revision for pod, (revision, _) in readings.items()}
    return Window(since=now, began=counts, latest=counts, revision_of=revisions)


def look_again(window: Window, readings: Mapping[str, tuple[str, Attained]]) -> Window:
    counts = {pod: attained for pod, (_, attained) in readings.items()}
    fresh = {pod: Attained() for pod in counts if pod not in window.began}
    revisions = {pod: revision for pod, (revision, _) in readings.items()}
    return replace(
        window,
        began={**window.began, **fresh},
        latest={**window.latest, **counts},
        revision_of={**window.revision_of, **revisions},
    )


def judge_attainment(
    candidate: Attained, good: Attained, gate: SloGate, slo: ServiceLevelObjective
) -> Verdict:
    """
    | requests, attainment                              | verdict      |
    |---------------------------------------------------|--------------|
    | the candidate answered fewer than minRequests     | inconclusive |
    | the last known good answered none                 | inconclusive |
    | dropped by more than the limit, chance under 1 %  | failed       |
    | any other                                         | passed       |
    """
    if candidate.first_tokens < gate.min_requests:
        message = f"the candidate answered {candidate.first_tokens} requests, {gate.min_requests} are needed"
        return Verdict(state="Inconclusive", reason=REASON_INCONCLUSIVE, message=message)
    if good.first_tokens == 0:
        message = "the last known good answered no request to compare with"
        return Verdict(state="Inconclusive", reason=REASON_INCONCLUSIVE, message=message)
    first = _Comparison(
        f"first token within {slo.ttft_milliseconds} ms",
        (candidate.first_in_time, candidate.first_tokens),
        (good.first_in_time, good.first_tokens),
    )
    pace = _Comparison(
        f"{slo.tpot_milliseconds} ms a token",
        (candidate.paced_in_time, candidate.paced),
        (good.paced_in_time, good.paced),
    )
    message = f"{first.words()}; {pace.words()}"
    if any(one.is_worse(gate.max_attainment_drop_percent) for one in (first, pace)):
        return Verdict(state="Failed", reason=REASON_FAILED, message=message)
    return Verdict(state="Passed", reason="GatePassed", message=message)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One objective: (in time, all) of the candidate and of the last known good."""

    objective: str
    candidate: tuple[int, int]
    good: tuple[int, int]

    def is_worse(self, limit_percent: int) -> bool:
        (in_time, total), (other_in_time, other_total) = self.candidate, self.good
        if not total or not other_total:
            return False
        # In whole numbers: a drop of exactly the limit is allowed.
        drop = other_in_time * total - in_time * other_total
        if 100 * drop <= limit_percent * total * other_total:
            return False
        return fisher_p(in_time, total, other_in_time, other_total) < SIGNIFICANCE

    def words(self) -> str:
        return f"{self.objective}: {_percent(*self.candidate)} against {_percent(*self.good)}"


def _percent(some: int, total: int) -> str:
    return f"{100 * some / total:.1f} % of {total}" if total else "no request"
