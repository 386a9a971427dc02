"""What Argo CD, Flux and kstatus make of every combination of conditions, and of every status we write."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from octavo_operator.api.status import InferenceServiceStatus, render_status
from octavo_operator.decide.report import build_first_status, build_invalid_status
from tests.gitops.readers import argocd_health, flux_status, plain
from tests.octavo_operator.builders import NOW, make_spec, make_world
from tests.octavo_operator.decide.test_next_state import SCENE_NAMES, SCENES, decide, fields, rolling, serving
from tests.support.kstatus import kstatus

GENERATION = 3
STATUSES = ("True", "False", "Unknown", None)
ARGOCD = {"InProgress": "Progressing", "Failed": "Degraded", "Current": "Healthy"}
COMBINATIONS = [
    dict(zip(("Ready", "Reconciling", "Stalled", "Suspended", "Available"), statuses, strict=True))
    for statuses in product(STATUSES, STATUSES, STATUSES, ("True", "False", None), ("True", "False"))
]


def condition(kind: str, status: str, generation: int = GENERATION) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": f"Because{kind}",
        "message": f"{kind} is {status}",
        "observedGeneration": generation,
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }


def body_with(
    statuses: dict[str, str | None], *, observed: int = GENERATION, generation: int = GENERATION
) -> dict[str, Any]:
    conditions = [condition(kind, status, observed) for kind, status in statuses.items() if status]
    return {
        "metadata": {"name": "chat", "generation": generation},
        "status": {"observedGeneration": observed, "conditions": conditions},
    }


def expected(statuses: dict[str, str | None]) -> str:
    """
    | Ready is absent | Reconciling | Stalled | Ready | kstatus    |
    |-----------------|-------------|---------|-------|------------|
    | yes             | any         | any     |       | InProgress |
    | no              | True        | any     | any   | InProgress |
    | no              | not True    | True    | any   | Failed     |
    | no              | not True    | not True| True  | Current    |
    | no              | not True    | not True| other | InProgress |
    """
    if statuses["Ready"] is None or statuses["Reconciling"] == "True":
        return "InProgress"
    if statuses["Stalled"] == "True":
        return "Failed"
    return "Current" if statuses["Ready"] == "True" else "InProgress"


def test_every_combination_is_read_alike_by_all_three() -> None:
    for statuses in COMBINATIONS:
        body, health = body_with(statuses), expected(statuses)
        assert flux_status(body) == health, statuses
        if statuses["Ready"] is not None:
            assert kstatus(body) == health, statuses
        frozen = statuses["Suspended"] == "True" and statuses["Ready"] is not None
        may_be_frozen = frozen and statuses["Reconciling"] != "True" and statuses["Stalled"] != "True"
        wanted = "Suspended" if may_be_frozen else ARGOCD[health]
        assert argocd_health(body)[0] == wanted, statuses


@pytest.mark.parametrize(
    ("observed", "generation"), [(-1, 1), (2, 3), (0, 1)], ids=["never visited", "stale", "zero"]
)
def test_nothing_is_finished_before_the_operator_has_seen_the_generation(
    observed: int, generation: int
) -> None:
    for statuses in COMBINATIONS:
        body = body_with(statuses, observed=observed, generation=generation)
        assert (flux_status(body), kstatus(body)) == ("InProgress", "InProgress")
        assert argocd_health(body) == ("Progressing", "Waiting for the operator to see this generation")


def test_condition_of_an_older_generation_counts_for_nothing() -> None:
    """The status was seen anew, one of its conditions was not."""
    body = body_with({"Ready": "True", "Reconciling": None, "Stalled": None})
    body["status"]["conditions"] = [condition("Ready", "True", GENERATION - 1)]
    assert flux_status(body) == "InProgress"
    assert argocd_health(body)[0] == "Progressing"


@pytest.mark.parametrize(
    "status", [{"observedGeneration": -1}, {"observedGeneration": GENERATION}], ids=["default", "bare"]
)
def test_status_without_conditions_is_progress(status: dict[str, Any]) -> None:
    body = {"metadata": {"generation": GENERATION}, "status": status}
    assert flux_status(body) == "InProgress"
    assert argocd_health(body)[0] == "Progressing"


def test_object_without_status_is_progress_for_argocd() -> None:
    assert argocd_health({"metadata": {"generation": 1}})[0] == "Progressing"


def test_argocd_is_told_why() -> None:
    body = body_with({"Ready": "False", "Stalled": "True", "Available": "True"})
    assert argocd_health(body) == ("Degraded", "BecauseReady: Ready is False")


def wire(status: InferenceServiceStatus, generation: int = 1) -> dict[str, Any]:
    return plain({"metadata": {"generation": generation}, "status": render_status(status)})


@pytest.mark.parametrize(("world", "target", "_statuses", "_reason", "seen_as"), SCENES, ids=SCENE_NAMES)
def test_every_status_that_is_written_is_read_alike(
    world: Any, target: Any, _statuses: str, _reason: str, seen_as: str
) -> None:
    body = wire(decide(world, target).status)
    assert (kstatus(body), flux_status(body), argocd_health(body)[0]) == (seen_as, seen_as, ARGOCD[seen_as])


def test_first_visit_is_progress() -> None:
    body = wire(build_first_status(make_world(generation=2), now=NOW), generation=2)
    assert (kstatus(body), flux_status(body), argocd_health(body)[0]) == (
        "InProgress",
        "InProgress",
        "Progressing",
    )


def test_unreadable_spec_is_a_failure_whatever_was_before() -> None:
    before = decide(serving()).status
    invalid = build_invalid_status(before, (), generation=2, reason="InvalidSpec", message="no", now=NOW)
    body = wire(invalid, generation=2)
    assert (kstatus(body), flux_status(body), argocd_health(body)[0]) == ("Failed", "Failed", "Degraded")


def test_frozen_service_that_serves_is_suspended_for_argocd_and_current_for_flux() -> None:
    body = wire(decide(serving(spec=make_spec(suspend=True))).status)
    assert argocd_health(body)[0] == "Suspended"
    assert (kstatus(body), flux_status(body)) == ("Current", "Current")


def test_edit_that_waits_for_a_frozen_service_is_never_taken_for_done() -> None:
    spec = make_spec(engine={"maxSequences": 3}, suspend=True)
    body = wire(decide(make_world(**{**fields(rolling()), "spec": spec})).status)
    assert argocd_health(body)[0] == "Suspended"
    assert (kstatus(body), flux_status(body)) == ("InProgress", "InProgress")
