"""The conditions and the part of status that tell of a rollout."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from octavo_operator.api.spec import Rollout
from octavo_operator.api.status import (
    MAX_MESSAGE_LENGTH,
    ConditionStatus,
    LastKnownGood,
    RolloutStatus,
)
from octavo_operator.decide.conditions import Finding, storable
from octavo_operator.decide.observed import parse_time
from octavo_operator.decide.rollout import RolloutDecision
from octavo_operator.desired.learned import Learned
from octavo_operator.desired.revision import Revision

ROLLOUT_GATE_PASSED: Final = "RolloutGatePassed"
SUSPENDED: Final = "Suspended"
INCONCLUSIVE: Final = "GateInconclusive"
GATE_STATUS: Final[dict[str, ConditionStatus]] = {
    "Passed": "True",
    "Inconclusive": "True",
    "Failed": "False",
    "Pending": "Unknown",
}


def judge_gate(rollout: RolloutDecision, learned: Learned, asked: Rollout) -> Finding:
    """Of the revision that spec asks for: what its gates say now, or saw when they let it serve."""
    finding = _judge_gate(rollout, learned)
    if asked.gate.slo is None or asked.strategy == "Canary":
        return finding
    words = "spec.rollout.gate.slo is judged on a canary's share, with strategy Canary only"
    return replace(finding, message=f"{finding.message}; {words}" if finding.message else words)


def _judge_gate(rollout: RolloutDecision, learned: Learned) -> Finding:
    if rollout.promoted:
        seen = rollout.evidence or learned.evidence
        reason = INCONCLUSIVE if INCONCLUSIVE in seen else "GatePassed"
        return Finding(type=ROLLOUT_GATE_PASSED, status="True", reason=reason, message=seen)
    if rollout.target is None:
        message = "There is no revision to judge yet"
        return Finding(type=ROLLOUT_GATE_PASSED, status="Unknown", reason="NoRevision", message=message)
    gate = rollout.gate
    if gate.reason == "NotAsked":
        message = f"Revision {rollout.target} has not been judged yet"
        return Finding(type=ROLLOUT_GATE_PASSED, status="Unknown", reason="NotReady", message=message)
    message = gate.message or f"No replica of revision {rollout.target} is ready"
    return Finding(
        type=ROLLOUT_GATE_PASSED, status=GATE_STATUS[gate.state], reason=gate.reason, message=message
    )


def judge_suspended(suspended: bool) -> Finding:
    if not suspended:
        return Finding(type=SUSPENDED, status="False", reason="NotSuspended", message="")
    message = "spec.suspend is true: what runs goes on serving, and nothing is written or deleted"
    return Finding(type=SUSPENDED, status="True", reason="Suspended", message=message)


def rollout_status(rollout: RolloutDecision) -> RolloutStatus | None:
    """None while nothing is under way: then status says it all by its conditions."""
    step = name_step(rollout)
    if not step or rollout.target is None:
        return None
    return RolloutStatus(
        strategy=rollout.strategy or "Surge",
        step=step,
        canary_weight_percent=0 if rollout.failed else rollout.weights.get(rollout.target, 0),
        message=storable(rollout.message, MAX_MESSAGE_LENGTH),
    )


def name_step(rollout: RolloutDecision) -> str:
    """
    | what is done                     | word         |
    |----------------------------------|--------------|
    | the candidate was given up       | `Failed`     |
    | it took over in this pass        | `Promoted`   |
    | a canary step, say the second    | `Canary2`    |
    | pods are exchanged one for one   | `Exchanging` |
    | its pods start                   | `Starting`   |
    | its gates are asked              | `Judging`    |
    """
    if rollout.failed is not None and rollout.serving is not None:
        return "Failed"
    if rollout.reason == "Promoted":
        return "Promoted"
    if rollout.step:
        return f"Canary{rollout.step}"
    if rollout.strategy == "InPlace":
        return "Exchanging"
    if not rollout.strategy:
        return ""
    return "Starting" if rollout.gate.reason == "NotReady" else "Judging"


def last_known_good(
    serving: str | None, stored: Revision | None, learned: Learned, *, proven_at: str
) -> LastKnownGood | None:
    """None before any revision was fit, or where somebody deleted its record or overwrote its time."""
    if serving is None or stored is None or parse_time(proven_at) is None:
        return None
    return LastKnownGood(
        revision=serving,
        resolved_revision=stored.commit,
        image_digest=learned.image_digest,
        proven_at=proven_at,
        evidence=storable(learned.evidence, MAX_MESSAGE_LENGTH),
    )
