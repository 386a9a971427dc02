"""What upstream has moved on to: when it is asked, when it is news, and what a service says of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_operator.api.spec import ModelSource
from octavo_operator.api.status import Condition, InferenceServiceStatus, ModelStatus
from octavo_operator.decide.events import draft_events
from octavo_operator.decide.image_pinning import judge_image, observed_digests
from octavo_operator.decide.model_conditions import (
    judge_drifted,
    judge_pinned,
    judge_words,
    model_status,
)
from octavo_operator.decide.target import Refusal
from octavo_operator.decide.upstream import (
    Upstream,
    follow,
    is_news,
    next_question_seconds,
    place_to_watch,
    remember_answer,
)
from tests.octavo_operator.builders import (
    COMMIT,
    NOW,
    URI,
    make_container,
    make_pin,
    make_pod,
    make_spec,
    make_world,
)

NEXT = "f" * 40
IMAGE_DIGEST = f"sha256:{'0f' * 32}"
OUTAGE = Refusal(reason="HubUnavailable", message="unreachable", lasting=False)
GONE = Refusal(reason="RevisionNotFound", message="no such branch")
PRIVATE = Refusal(reason="RepositoryNotFound", message="no such repository, or it is private")


def model(**words: Any) -> ModelSource:
    return make_spec(model={"uri": URI, **words}).model


def test_only_words_that_can_move_on_a_hub_are_watched() -> None:
    assert place_to_watch(model()) == (URI, "main")
    assert place_to_watch(model(revision="v1", refreshToken="x")) == (URI, "v1")
    assert place_to_watch(model(revision=COMMIT)) is None
    assert place_to_watch(model(uri="pvc://models/qwen")) is None


def test_outage_is_no_news_and_forgets_nothing() -> None:
    known = remember_answer(Upstream(), COMMIT)
    silent = remember_answer(known, OUTAGE)
    assert silent.commit == COMMIT
    assert not is_news(known, silent)
    assert not is_news(silent, remember_answer(silent, COMMIT))
    assert is_news(known, remember_answer(silent, NEXT))
    gone = remember_answer(known, GONE)
    assert is_news(known, gone)
    assert not is_news(gone, remember_answer(gone, GONE))
    assert is_news(gone, remember_answer(gone, COMMIT))


@given(st.floats(1, 86400), st.integers(0, 100), st.floats(0, 1))
def test_questions_become_rarer_with_failures_and_never_stop(
    interval: float, failures: int, jitter: float
) -> None:
    seconds = [next_question_seconds(interval, number, jitter) for number in range(failures + 1)]
    assert all(earlier <= later for earlier, later in pairwise(seconds))
    assert interval <= seconds[0] <= 1.2 * interval
    assert seconds[-1] <= 1.2 * max(interval, 3600)


def test_branch_is_followed_only_under_track_and_only_when_it_moved() -> None:
    fixed, tracked = make_pin(), replace(make_pin(), tracked=True)
    moved = Upstream(commit=NEXT)
    assert follow(fixed, moved, now=NOW) == fixed
    assert follow(None, moved, now=NOW) is None
    for unmoved in (None, Upstream(), Upstream(refusal=OUTAGE), Upstream(commit=COMMIT)):
        assert follow(tracked, unmoved, now=NOW) == tracked
    pin = follow(tracked, moved, now=NOW)
    assert pin is not None
    assert (pin.commit, pin.tracked, pin.resolved_at) == (NEXT, True, "2026-01-02T03:04:05Z")
    assert pin.manifest_digest == ""


@pytest.mark.parametrize(
    ("upstream", "status", "reason", "text"),
    [
        pytest.param(None, "Unknown", "NotAsked", "main", id="not asked"),
        pytest.param(Upstream(refusal=OUTAGE), "Unknown", "NotAsked", "main", id="never reached"),
        pytest.param(Upstream(commit=COMMIT), "False", "UpToDate", COMMIT, id="the same"),
        pytest.param(Upstream(commit=NEXT), "True", "UpstreamMoved", NEXT, id="moved"),
        pytest.param(Upstream(commit=NEXT, refusal=OUTAGE), "True", "UpstreamMoved", NEXT, id="then silent"),
        pytest.param(Upstream(commit=COMMIT, refusal=GONE), "True", "UpstreamGone", COMMIT, id="gone"),
        pytest.param(Upstream(refusal=PRIVATE), "Unknown", "UpstreamUnknown", "private", id="no token"),
    ],
)
def test_drift_is_told(upstream: Upstream | None, status: str, reason: str, text: str) -> None:
    finding = judge_drifted(model(), make_pin(), upstream, None)
    assert (finding.type, finding.status, finding.reason) == ("RevisionDrifted", status, reason)
    assert text in finding.message


def test_followed_branch_says_that_it_waits() -> None:
    finding = judge_drifted(model(revisionPolicy="Track"), make_pin(), Upstream(commit=NEXT), None)
    assert (finding.status, finding.reason) == ("True", "UpstreamMoved")
    assert "until it can be looked at" in finding.message
    private = judge_drifted(model(revisionPolicy="Track"), make_pin(), Upstream(refusal=PRIVATE), None)
    assert (private.status, private.reason) == ("Unknown", "UpstreamUnknown")
    assert "cannot be followed" in private.message


def test_pinned_words_do_not_drift() -> None:
    words = make_spec(model={"uri": URI, "revision": COMMIT})
    finding = judge_drifted(words.model, make_pin(words), None, None)
    assert (finding.status, finding.reason) == ("False", "CannotMove")


def drifted(status: str, reason: str, message: str = "as it was") -> Condition:
    return Condition.model_validate(
        {
            "type": "RevisionDrifted",
            "status": status,
            "observed_generation": 1,
            "last_transition_time": "2026-01-01T00:00:00Z",
            "reason": reason,
            "message": message,
        }
    )


def said_of(revision: str, commit: str, upstream: str = "") -> InferenceServiceStatus:
    return InferenceServiceStatus(
        conditions=(drifted("True", "UpstreamMoved"),),
        model=ModelStatus(
            requested_revision=revision,
            resolved_revision=commit,
            short_revision=commit[:12],
            upstream_revision=upstream,
            resolved_at="2026-01-01T00:00:00Z",
        ),
    )


def test_restarted_operator_goes_on_saying_what_was_known() -> None:
    world = make_world(status=said_of("main", COMMIT, NEXT))
    _, finding = judge_words(world, make_pin())
    assert (finding.status, finding.reason, finding.message) == ("True", "UpstreamMoved", "as it was")
    known = model_status(world, make_pin())
    assert known is not None
    assert known.upstream_revision == NEXT


def test_other_words_do_not_inherit_the_drift_of_earlier_ones() -> None:
    world = make_world(status=said_of("v1", NEXT, "e" * 40))
    _, finding = judge_words(world, make_pin())
    assert (finding.status, finding.reason) == ("Unknown", "NotAsked")
    known = model_status(world, make_pin())
    assert known is not None
    assert known.upstream_revision == ""


def test_words_without_a_commit_say_only_whether_they_are_pinned() -> None:
    world = make_world(status=said_of("main", COMMIT, NEXT))
    (finding,) = judge_words(world, None)
    assert finding.type == "RevisionPinned"
    assert model_status(world, None) == world.status.model, "what serves was resolved once"


@pytest.mark.parametrize(
    ("words", "status", "reason", "text"),
    [
        pytest.param({"revision": COMMIT}, "True", "Pinned", COMMIT, id="commit"),
        pytest.param({}, "False", "UnpinnedWords", f"revision: {COMMIT}", id="branch"),
        pytest.param({"revisionPolicy": "Track"}, "False", "Tracked", "main", id="followed"),
    ],
)
def test_promise_of_the_words_is_told_honestly(
    words: dict[str, str], status: str, reason: str, text: str
) -> None:
    finding = judge_pinned(model(**words), make_pin())
    assert (finding.type, finding.status, finding.reason) == ("RevisionPinned", status, reason)
    assert text in finding.message
    if reason == "UnpinnedWords":
        assert "as long as this InferenceService exists" in finding.message


def test_digest_of_a_folder_is_shown_short() -> None:
    spec = make_spec(model={"uri": "pvc://models/qwen", "revision": IMAGE_DIGEST})
    known = model_status(make_world(spec=spec), make_pin(spec, commit=IMAGE_DIGEST))
    assert known is not None
    assert (known.resolved_revision, known.short_revision) == (IMAGE_DIGEST, "0f" * 6)


def test_move_of_upstream_is_an_event_once() -> None:
    before, moved = said_with("False", "UpToDate"), said_with("True", "UpstreamMoved")
    (draft,) = draft_events(before, moved)
    assert (draft.type, draft.reason) == ("Normal", "UpstreamMoved")
    assert draft_events(moved, moved) == draft_events(moved, before) == ()
    further = moved.model_copy(update={"conditions": (drifted("True", "UpstreamMoved", "further"),)})
    assert len(draft_events(moved, further)) == 1


def said_with(status: str, reason: str) -> InferenceServiceStatus:
    return InferenceServiceStatus(conditions=(drifted(status, reason),))


# The image ----------------------------------------------------------------------------------------
def running(image_id: str, name: str = "engine") -> Any:
    return make_pod(containers=(make_container(name=name, image_id=image_id),))


def test_digests_are_those_that_engines_run() -> None:
    pods = [
        running(f"example.test/engine@{IMAGE_DIGEST}"),
        running(f"example.test/engine@{IMAGE_DIGEST}"),
        running(f"sha256:{'aa' * 32}", name="fetch"),
        running(""),
    ]
    assert observed_digests(pods) == (IMAGE_DIGEST,)


@pytest.mark.parametrize(
    ("image", "digests", "status", "reason", "text"),
    [
        (f"example.test/engine@{IMAGE_DIGEST}", (), "True", "Digest", "one image"),
        ("example.test:5000/engine:1", (), "False", "Tag", "write the digest"),
        ("example.test:5000/engine:1", (IMAGE_DIGEST,), "False", "Tag", f":5000/engine@{IMAGE_DIGEST}"),
        ("example.test:5000/engine", (IMAGE_DIGEST,), "False", "Tag", f":5000/engine@{IMAGE_DIGEST}"),
        ("engine:1", (IMAGE_DIGEST, NEXT), "False", "ImagesDiffer", NEXT),
    ],
    ids=["digest", "tag", "tag seen", "no tag", "tag that moved"],
)
def test_image_that_a_tag_names_is_not_pinned(
    image: str, digests: tuple[str, ...], status: str, reason: str, text: str
) -> None:
    finding = judge_image(image, digests)
    assert (finding.type, finding.status, finding.reason) == ("ImagePinned", status, reason)
    assert text in finding.message
