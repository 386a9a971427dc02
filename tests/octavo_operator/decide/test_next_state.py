"""One pass as a whole: children in order, conditions by kstatus' rules, events once."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from octavo_operator.api.status import Condition, InferenceServiceStatus
from octavo_operator.decide.events import draft_events
from octavo_operator.decide.next_state import NextState, Removal, decide_next_state
from octavo_operator.decide.observed import Placed, PodView
from octavo_operator.decide.report import build_first_status, build_invalid_status
from octavo_operator.decide.rollout.values import GateFacts, Verdict
from octavo_operator.decide.scaling import ScalingDecision
from octavo_operator.decide.target import Refusal, Target
from octavo_operator.decide.world import World
from octavo_operator.desired.learned import Learned
from octavo_operator.desired.rollout_record import FailedRollout, RolloutRecord
from tests.octavo_operator.builders import (
    COMMIT,
    NOW,
    make_container,
    make_deployment,
    make_pin,
    make_pod,
    make_ready_pods,
    make_revision,
    make_spec,
    make_stored,
    make_target,
    make_world,
)

NO_GATES = GateFacts()
OTHER = make_spec(engine={"maxSequences": 3})
A, B = make_revision(), make_revision(OTHER)
NO_REPOSITORY = Target(refusal=Refusal(reason="RepositoryNotFound", message="no such repository"))
NO_MEMORY = Target(pin=make_pin(), refusal=Refusal(reason="InsufficientMemory", message="need 2, have 1"))
NO_HUB = Target(refusal=Refusal(reason="HubUnavailable", message="unreachable", lasting=False))


def decide(
    world: World,
    target: Target | None = None,
    *,
    now: datetime = NOW,
    gates: GateFacts = NO_GATES,
    **scaling: Any,
) -> NextState:
    decision = ScalingDecision(**{"replicas": 1, "reason": "Static", "message": "fixed", **scaling})
    return decide_next_state(world, target or make_target(world.spec), decision, now=now, gates=gates)


def serving(**changes: Any) -> World:
    """A serves; spec still asks for it."""
    values: dict[str, Any] = {
        "selected": A.hash,
        "revisions": {A.hash: make_stored(A)},
        "deployments": {A.hash: make_deployment(A.hash)},
        "pods": make_ready_pods(A.hash),
        "pins": (make_pin(),),
    }
    return make_world(**{**values, **changes})


def rolling(**candidate: Any) -> World:
    """A serves; spec asks for B, whose Deployment is there."""
    return serving(
        spec=OTHER,
        revisions={A.hash: make_stored(A), B.hash: make_stored(B, number=2, proven=False)},
        deployments={A.hash: make_deployment(A.hash), B.hash: make_deployment(B.hash, **candidate)},
    )


def by_type(status: InferenceServiceStatus) -> dict[str, Condition]:
    return {condition.type: condition for condition in status.conditions}


def kstatus(status: InferenceServiceStatus, generation: int) -> str:
    """The rules of sigs.k8s.io/cli-utils/pkg/kstatus for a custom resource."""
    conditions = by_type(status)
    if status.observed_generation != generation:
        return "InProgress"
    if conditions["Reconciling"].status == "True":
        return "InProgress"
    if conditions["Stalled"].status == "True":
        return "Failed"
    return "Current" if conditions["Ready"].status == "True" else "InProgress"


MISSING = make_container(exit_code=1, termination_message='{"reason": "FileMissing", "message": "x"}')
FAILED_POD = make_pod(B.hash, containers=(MISSING,))
PULLING_POD = make_pod(B.hash, containers=(make_container(waiting_reason="ErrImagePull"),))
LATE = rolling(deadline_exceeded=True)
DOWN = serving(pods=())
SCENES = [
    (serving(), None, "True True False False", "Serving", "Current"),
    (make_world(), None, "False False True False", "RolloutProgressing", "InProgress"),
    (make_world(), NO_REPOSITORY, "False False False True", "RepositoryNotFound", "Failed"),
    (make_world(), NO_MEMORY, "False False False True", "InsufficientMemory", "Failed"),
    (make_world(), NO_HUB, "False False True False", "HubUnavailable", "InProgress"),
    (serving(), NO_REPOSITORY, "False True False True", "RepositoryNotFound", "Failed"),
    (rolling(), None, "False True True False", "RolloutProgressing", "InProgress"),
    (LATE, None, "False True False True", "ProgressDeadlineExceeded", "Failed"),
    (DOWN, None, "False False True False", "NoReadyReplica", "InProgress"),
]
SCENE_NAMES = [
    "settled",
    "begun",
    "refused",
    "no memory",
    "no hub",
    "refused edit",
    "rolling",
    "late",
    "down",
]


@pytest.mark.parametrize(("world", "target", "statuses", "reason", "seen_as"), SCENES, ids=SCENE_NAMES)
def test_conditions_tell(
    world: World, target: Target | None, statuses: str, reason: str, seen_as: str
) -> None:
    status = decide(world, target).status
    conditions = by_type(status)
    told = [conditions[kind].status for kind in ("Ready", "Available", "Reconciling", "Stalled")]
    assert " ".join(told) == statuses
    assert conditions["Ready"].reason == reason
    assert kstatus(status, world.generation) == seen_as
    assert {one.observed_generation for one in status.conditions} == {world.generation}


@pytest.mark.parametrize(
    ("pod", "reason", "stalled"),
    [
        pytest.param(FAILED_POD, "FileMissing", "True", id="for good"),
        pytest.param(PULLING_POD, "ImagePullFailed", "False", id="another try may do"),
    ],
)
def test_failed_candidate_keeps_the_last_good_one(pod: Any, reason: str, stalled: str) -> None:
    state = decide(make_world(**{**fields(rolling()), "pods": (*make_ready_pods(A.hash), pod)}))
    conditions = by_type(state.status)
    assert (conditions["Ready"].status, conditions["Ready"].reason) == ("False", reason)
    assert conditions["Available"].status == "True"
    assert conditions["Stalled"].status == stalled
    assert state.status.current_revision == A.hash
    assert state.status.last_failure is not None
    given_up = [Removal(kind="Deployment", name=f"chat-{B.hash}")] if stalled == "True" else []
    assert list(state.removals) == given_up


def fields(world: World) -> dict[str, Any]:
    return {name: getattr(world, name) for name in World.__slots__}


def test_transition_times_move_only_when_the_status_does() -> None:
    first = decide(make_world()).status
    later = decide(serving(status=first, generation=2), now=NOW + timedelta(hours=1)).status
    before, after = by_type(first), by_type(later)
    assert after["Ready"].last_transition_time == "2026-01-02T04:04:05Z"
    for kind in ("Stalled", "ModelResolved", "MemoryPlanned"):
        assert after[kind].last_transition_time == before[kind].last_transition_time
        assert after[kind].observed_generation == 2


def test_first_status_of_a_new_generation_is_not_ready() -> None:
    ready = decide(serving()).status
    first = build_first_status(serving(status=ready, generation=2), now=NOW)
    conditions = by_type(first)
    assert first.observed_generation == 2
    assert conditions["Ready"].status == "Unknown"
    assert conditions["Available"].observed_generation == 1
    assert kstatus(first, 2) == "InProgress"


@pytest.mark.parametrize(("ready", "available"), [(1, "True"), (0, "False")])
def test_status_of_an_unreadable_object_stalls_and_tells_whether_it_still_answers(
    ready: int, available: str
) -> None:
    """Its pods went on failing, and status said for ever that they answer."""
    before = decide(serving()).status
    assert before.current_revision is not None
    pod = make_pod(before.current_revision, ready=bool(ready))
    invalid = build_invalid_status(
        before, [pod], generation=2, reason="InvalidSpec", message="spec.replicas: got 0", now=NOW
    )
    conditions = by_type(invalid)
    assert (conditions["Ready"].status, conditions["Stalled"].status) == ("False", "True")
    assert (conditions["Available"].status, conditions["Available"].observed_generation) == (available, 2)
    assert (invalid.replicas, invalid.ready_replicas) == (1, ready)
    assert kstatus(invalid, 2) == "Failed"
    assert invalid.model == before.model


def test_children_come_in_an_order_that_loses_no_promise() -> None:
    state = decide(make_world())
    assert [manifest["kind"] for manifest in state.manifests] == [
        "ConfigMap",
        "ControllerRevision",
        "Service",
        "NetworkPolicy",
        "Deployment",
    ]


@pytest.mark.parametrize("target", [NO_REPOSITORY, NO_HUB], ids=["refused", "unreachable"])
def test_nothing_is_made_when_the_words_mean_nothing_yet(target: Target) -> None:
    assert decide(make_world(), target).manifests == ()


def test_only_the_pin_is_kept_when_the_model_does_not_fit() -> None:
    state = decide(make_world(), NO_MEMORY)
    assert [manifest["kind"] for manifest in state.manifests] == ["ConfigMap"]
    assert state.status.model is not None
    assert state.status.model.resolved_revision == COMMIT


def test_stored_template_is_applied_when_the_operator_would_now_render_another() -> None:
    stored = make_revision()
    stored.template["spec"]["containers"][0]["image"] = "example.test/engine:old"
    world = serving(revisions={A.hash: make_stored(stored)})
    target = Target(pin=make_pin(), revision=stored)
    deployment = next(m for m in decide(world, target).manifests if m["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "example.test/engine:old"


def test_candidate_that_becomes_ready_takes_over_and_the_old_one_goes_a_pass_later() -> None:
    world = rolling()
    ready = make_ready_pods(A.hash, B.hash)
    state = decide(make_world(**{**fields(world), "pods": ready}))
    service = next(manifest for manifest in state.manifests if manifest["kind"] == "Service")
    assert service["spec"]["selector"]["octavo.dev/revision"] == B.hash
    assert state.removals == ()
    proven = next(m for m in state.manifests if m["metadata"]["name"] == f"chat-{B.hash}")
    assert proven["kind"] == "ControllerRevision"
    annotations = proven["metadata"]["annotations"]
    assert annotations["octavo.dev/proven-at"] == "2026-01-02T03:04:05Z"
    assert annotations["octavo.dev/evidence"] == "ready"

    revisions = {A.hash: make_stored(A), B.hash: make_stored(B, number=2)}
    moved = make_world(**{**fields(world), "pods": ready, "selected": B.hash, "revisions": revisions})
    assert [(one.kind, one.name) for one in decide(moved).removals] == [("Deployment", f"chat-{A.hash}")]


@pytest.mark.parametrize(
    ("pods", "settled"),
    [
        pytest.param(make_ready_pods(A.hash, *[B.hash] * 4), True, id="three of four are ending"),
        pytest.param(
            make_ready_pods(*[A.hash] * 4, *[B.hash] * 4),
            False,
            id="three of four have not been told to end yet",
        ),
    ],
)
def test_revert_right_after_a_canary_step_moves_no_request_to_pods_that_are_ending(
    pods: tuple[PodView, ...], settled: bool
) -> None:
    """The Deployment's status still told of four ready pods, so one pod got all the requests."""
    ending = tuple(replace(pod, terminating=True) for pod in make_ready_pods(*[A.hash] * 3))
    reverted = serving(
        revisions={
            A.hash: make_stored(A),
            B.hash: make_stored(B, number=2, learned=Learned(record=RolloutRecord(weight=80)), proven=False),
        },
        deployments={
            A.hash: make_deployment(A.hash, wanted=4, existing=4, settled=settled),
            B.hash: make_deployment(B.hash, wanted=4, existing=4),
        },
        pods=(*pods, *ending),
        shared=True,
    )
    state = decide(reverted, replicas=4)
    main = next(one for one in state.manifests if one["kind"] == "Service")
    assert "octavo.dev/revision" not in main["spec"]["selector"], "both go on answering"
    assert replicas_of(state) == {f"chat-{A.hash}": 4, f"chat-{B.hash}": 4}

    back = make_ready_pods(*[A.hash] * 4, *[B.hash] * 4)
    there = replace(reverted.deployments[A.hash], settled=True)
    later = replace(reverted, pods=back, deployments={**reverted.deployments, A.hash: there})
    main = next(one for one in decide(later, replicas=4).manifests if one["kind"] == "Service")
    assert main["spec"]["selector"]["octavo.dev/revision"] == A.hash


def replicas_of(state: NextState) -> dict[str, int]:
    return {
        one["metadata"]["name"]: one["spec"]["replicas"]
        for one in state.manifests
        if one["kind"] == "Deployment"
    }


def test_replicas_travel_with_every_template() -> None:
    state = decide(rolling(), replicas=4)
    deployments = [manifest for manifest in state.manifests if manifest["kind"] == "Deployment"]
    assert [deployment["spec"]["replicas"] for deployment in deployments] == [4, 4]


def test_events_are_drafted_once() -> None:
    world = make_world()
    first = decide(world).status
    assert {draft.reason for draft in draft_events(world.status, first)} == {"RolloutProgressing", "Resolved"}
    assert draft_events(first, decide(make_world(status=first)).status) == ()
    scaled = decide(make_world(status=first), replicas=3).status
    assert [draft.reason for draft in draft_events(first, scaled)] == ["Scaled"]
    failed = decide(make_world(status=first), NO_REPOSITORY).status
    assert [(draft.type, draft.reason) for draft in draft_events(first, failed)] == [
        ("Warning", "RepositoryNotFound")
    ]


def test_scaling_words_are_kept_until_a_restarted_operator_has_read_the_engines() -> None:
    first = decide(serving(), reason="LoadOnTarget", message="3 running").status
    again = decide(serving(status=first), reason="MetricsUnread", message="not yet").status
    assert again.autoscaling == first.autoscaling


def test_nothing_is_written_or_deleted_while_suspended() -> None:
    suspended = make_spec(engine={"maxSequences": 3}, suspend=True)
    state = decide(make_world(**{**fields(rolling()), "spec": suspended}))
    conditions = by_type(state.status)
    assert (state.manifests, state.removals) == ((), ())
    assert conditions["Suspended"].status == "True"
    assert (conditions["Ready"].status, conditions["Ready"].reason) == ("False", "Suspended")
    assert conditions["Available"].status == "True"
    assert kstatus(state.status, 1) == "InProgress"


def test_suspended_service_that_serves_what_was_asked_stays_ready() -> None:
    status = decide(serving(spec=make_spec(suspend=True))).status
    assert by_type(status)["Ready"].status == "True"
    assert by_type(status)["Suspended"].status == "True"


def test_suspended_service_is_not_ready_while_what_was_reverted_answers_half_of_the_requests() -> None:
    """A revert in mid-canary was told as Current, though a suspended Service goes on selecting both."""
    world = rolling()
    canary = make_ready_pods(A.hash, B.hash)
    changes = {"spec": make_spec(suspend=True), "pods": canary, "shared": True}
    status = decide(make_world(**{**fields(world), **changes})).status
    ready = by_type(status)["Ready"]
    assert (ready.status, ready.reason) == ("False", "Suspended")
    assert f"{A.hash} takes the traffic back from {B.hash}" in ready.message
    assert by_type(status)["Available"].status == "True"
    assert kstatus(status, 1) == "InProgress"

    alone = decide(make_world(**{**fields(world), **changes, "shared": False})).status
    assert kstatus(alone, 1) == "Current"


def test_status_is_still_written_when_somebody_overwrote_the_time_of_a_proof() -> None:
    """The API server refuses a status with a time that is none, and so every later one was refused."""
    stored = {A.hash: replace(make_stored(A), learned=Learned(proven_at="by hand"))}
    assert decide(serving(revisions=stored)).status.last_known_good is None


def test_last_known_good_is_told_with_its_evidence() -> None:
    learned = Learned(evidence="1 pod at 0123456789ab", image_digest="sha256:" + "a" * 64)
    stored = {A.hash: make_stored(A, learned=learned)}
    known = decide(serving(revisions=stored)).status.last_known_good
    assert known is not None
    assert (known.revision, known.resolved_revision) == (A.hash, COMMIT)
    assert (known.proven_at, known.evidence) == ("2026-01-01T00:01:00Z", "1 pod at 0123456789ab")
    assert known.image_digest == learned.image_digest


def test_image_digest_is_learned_from_a_ready_pod() -> None:
    digest = "sha256:" + "b" * 64
    engine = make_container(image_id=f"registry.test/engine@{digest}")
    pod = make_pod(A.hash, ready=True, containers=(engine,))
    state = decide(serving(pods=(pod,)))
    record = next(m for m in state.manifests if m["kind"] == "ControllerRevision")
    assert record["metadata"]["annotations"]["octavo.dev/image-digest"] == digest


def test_engines_own_blocks_are_learned() -> None:
    state = decide(serving(engine_reported_blocks=240))
    record = next(m for m in state.manifests if m["kind"] == "ControllerRevision")
    assert record["metadata"]["annotations"]["octavo.dev/engine-blocks"] == "240"


def test_failed_gate_is_told_and_remembered() -> None:
    bad = Verdict(state="Failed", reason="QualityGateFailed", message="1 of 2 probes match")
    ready = make_ready_pods(A.hash, B.hash)
    state = decide(make_world(**{**fields(rolling()), "pods": ready}), gates=GateFacts(quality=bad))
    conditions = by_type(state.status)
    gate = conditions["RolloutGatePassed"]
    assert (gate.status, gate.reason, gate.message) == ("False", "QualityGateFailed", "1 of 2 probes match")
    assert [conditions[kind].status for kind in ("Ready", "Available", "Stalled")] == [
        "False",
        "True",
        "True",
    ]
    assert state.status.rollout is not None
    assert (state.status.rollout.step, state.status.rollout.canary_weight_percent) == ("Failed", 0)
    record = next(m for m in state.manifests if m["metadata"]["name"] == f"chat-{B.hash}")
    assert "QualityGateFailed" in record["metadata"]["annotations"]["octavo.dev/rollout"]


def test_failure_is_forgotten_in_words_that_an_apply_does_not_pass_over() -> None:
    """Only fields that a manifest sets are compared with what is stored: one that is absent stays."""
    failed = FailedRollout(reason="X", message="x", terms="t", at=1)
    learned = Learned(record=RolloutRecord(failed=failed))
    revisions = {A.hash: make_stored(A), B.hash: make_stored(B, number=2, proven=False, learned=learned)}
    state = decide(serving(revisions=revisions))
    record = next(m for m in state.manifests if m["metadata"]["name"] == f"chat-{B.hash}")
    assert record["metadata"]["annotations"] == {"octavo.dev/rollout": ""}


def test_candidate_has_a_service_of_its_own_that_goes_with_the_rollout() -> None:
    state = decide(rolling())
    services = [m for m in state.manifests if m["kind"] == "Service"]
    assert [one["metadata"]["name"] for one in services] == ["chat", f"chat-{B.hash}"]
    assert services[1]["spec"]["selector"]["octavo.dev/revision"] == B.hash
    placed = Placed(kind="Service", name=f"chat-{B.hash}", revision=B.hash)
    after = decide(serving(surroundings=(placed,)))
    assert Removal(kind="Service", name=f"chat-{B.hash}") in after.removals


ROUTED = make_spec(routing={"httpRoute": {"parentRefs": [{"name": "public"}]}})


def test_absent_definition_is_told_once_the_service_is_ready() -> None:
    settled = decide(serving(spec=ROUTED)).status
    expected = {"Ready": "False", "Available": "True", "Stalled": "True", "Reconciling": "False"}
    assert {kind: by_type(settled)[kind].status for kind in expected} == expected
    assert by_type(settled)["Ready"].reason == "HTTPRouteNotServed"
    begun = decide(make_world(spec=ROUTED)).status
    assert by_type(begun)["Reconciling"].reason == "RolloutProgressing"


def test_served_definition_is_no_obstacle() -> None:
    status = decide(serving(spec=ROUTED, served_kinds=frozenset({"HTTPRoute"}))).status
    assert by_type(status)["Ready"].status == "True"
