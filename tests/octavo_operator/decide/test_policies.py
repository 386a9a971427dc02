"""Policies of a revision: what they refuse, which commit they give, and what the ledger keeps."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.model_report import ModelReport
from octavo_operator.api.spec import ModelSource
from octavo_operator.decide.intent import build_intent, hash_intent
from octavo_operator.decide.pinning import (
    MAX_TRACKED,
    add_pin,
    find_pin,
    is_pinned,
    refuse_report,
    refuse_words,
    with_manifest,
)
from octavo_operator.decide.world import merge_pins
from octavo_operator.desired.pins import MAX_PINS, PINS_KEY, Pin, PinsDamaged, build_pins, parse_pins
from octavo_operator.desired.revision import Revision
from tests.octavo_operator.builders import (
    COMMIT,
    OWNER,
    URI,
    make_pin,
    make_revision,
    make_spec,
    make_stored,
)

DIGEST = f"sha256:{'ab' * 32}"
OTHER_DIGEST = f"sha256:{'cd' * 32}"


def model(**words: Any) -> ModelSource:
    return make_spec(model={"uri": URI, **words}).model


def commit(number: int) -> str:
    return f"{number:040x}"


@pytest.mark.parametrize(
    ("words", "pinned"),
    [
        pytest.param({"revision": COMMIT}, True, id="commit"),
        pytest.param({"revision": "main"}, False, id="branch"),
        pytest.param({"revision": DIGEST}, False, id="a digest is no commit of a hub"),
        pytest.param({"uri": "pvc://models/qwen", "revision": DIGEST}, True, id="claim"),
        pytest.param({"uri": "pvc://models/qwen"}, False, id="whatever the claim holds"),
        pytest.param({"uri": "oci://ghcr.io/models/qwen:1", "revision": DIGEST}, True, id="image"),
        pytest.param({"uri": "oci://ghcr.io/models/qwen:1", "revision": COMMIT}, False, id="no image's"),
    ],
)
def test_words_are_pinned_when_they_name_the_files_themselves(words: dict[str, str], pinned: bool) -> None:
    assert is_pinned(model(**words)) is pinned
    required = refuse_words(model(**words, revisionPolicy="RequirePinned"), None)
    assert (required is None) is pinned


def test_unpinned_words_are_refused_with_the_way_out_when_the_policy_requires_pinned_ones() -> None:
    refusal = refuse_words(model(revisionPolicy="RequirePinned"), make_pin())
    assert refusal is not None
    assert (refusal.reason, refusal.lasting) == ("RevisionNotPinned", True)
    assert "spec.model.revision: 'main'" in refusal.message
    assert COMMIT in refusal.message, "the words were resolved once: say to what"
    fresh = refuse_words(model(revisionPolicy="RequirePinned"), None)
    assert fresh is not None
    assert "octavo pin" in fresh.message


def test_folder_is_not_followed() -> None:
    refusal = refuse_words(model(uri="pvc://models/qwen", revisionPolicy="Track"), None)
    assert refusal is not None
    assert refusal.reason == "CannotTrack"
    assert "refreshToken" in refusal.message
    pinned = model(uri="pvc://models/qwen", revision=DIGEST, revisionPolicy="Track")
    assert refuse_words(pinned, None) is None, "there is nothing to follow"


def track(pins: tuple[Pin, ...], *commits: str) -> tuple[Pin, ...]:
    for one in commits:
        pins = add_pin(pins, make_tracked(one))
    return pins


def make_tracked(at: str) -> Pin:
    return Pin(
        uri=URI,
        revision="main",
        refresh_token="",
        commit=at,
        resolved_at="2026-01-01T00:00:00Z",
        tracked=True,
    )


def test_followed_branch_stands_at_the_latest_and_the_ledger_keeps_the_others() -> None:
    pins = track((), commit(1), commit(2), commit(2), commit(1))
    assert [pin.commit for pin in pins] == [commit(1), commit(2), commit(1)]
    found = find_pin(pins, model(revisionPolicy="Track"))
    assert found is not None
    assert found.commit == commit(1)


def test_policies_of_the_same_words_do_not_touch_each_other() -> None:
    """A revert of spec.model.revisionPolicy in Git gives the commit that there was before."""
    pins = track((make_pin(commit=commit(1)),), commit(2), commit(3))
    fixed, followed = find_pin(pins, model()), find_pin(pins, model(revisionPolicy="Track"))
    assert fixed is not None
    assert followed is not None
    assert (fixed.commit, fixed.tracked) == (commit(1), False)
    assert (followed.commit, followed.tracked) == (commit(3), True)


def test_branch_is_followed_on_from_where_it_was_fixed_and_fixed_where_it_was_followed_to() -> None:
    begun = find_pin((make_pin(),), model(revisionPolicy="Track"))
    assert begun is not None
    assert (begun.commit, begun.tracked) == (COMMIT, True)
    pins = track((), commit(1), commit(2))
    frozen = find_pin(pins, model())
    assert frozen is not None
    assert (frozen.commit, frozen.tracked) == (commit(2), False)
    again = find_pin(track(add_pin(pins, frozen), commit(3)), model())
    assert again is not None
    assert again.commit == commit(2)


def test_followed_commits_are_revisions_of_their_own_and_the_policy_alone_is_none() -> None:
    spec = make_spec(model={"uri": URI, "revisionPolicy": "Track"})
    assert hash_intent(build_intent(spec)) == hash_intent(build_intent(make_spec()))
    hashes = {hash_intent(build_intent(spec, tracked_commit=commit(n))) for n in range(3)}
    assert len(hashes) == 3


WORDS = [
    model(revisionPolicy=policy, refreshToken=token)
    for policy in ("ResolveOnce", "Track")
    for token in ("", "again")
]
moves = st.lists(st.tuples(st.sampled_from(WORDS), st.integers(1, 5)), max_size=40)


@given(moves)
def test_fixed_words_give_the_same_commit_for_ever(steps: list[tuple[ModelSource, int]]) -> None:
    """Whatever else happens: other words, other policies, a branch that moves all the time."""
    pins: tuple[Pin, ...] = ()
    promised: dict[str, str] = {}
    for words, upstream in steps:
        followed = words.revision_policy == "Track"
        pin = find_pin(pins, words)
        if pin is None or (followed and pin.commit != commit(upstream)):
            pin = Pin(
                uri=URI,
                revision="main",
                refresh_token=words.refresh_token,
                commit=commit(upstream),
                resolved_at="2026-01-01T00:00:00Z",
                tracked=followed,
            )
        pins = add_pin(pins, pin)
        assert find_pin(pins, words) == pin or not pin.tracked
        if not followed:
            assert promised.setdefault(words.refresh_token, pin.commit) == pin.commit
    stored = build_pins(OWNER, pins, {})["data"][PINS_KEY]
    assert parse_pins(stored, name="chat-pins") == pins


def test_busy_branch_does_not_push_out_what_was_fixed() -> None:
    pins = (make_pin(),)
    for number in range(2 * MAX_PINS):
        pins = track(pins, commit(number))
    assert len(pins) == MAX_TRACKED + 1
    found = find_pin(pins, model())
    assert found is not None
    assert found.commit == COMMIT


def test_ledger_is_made_from_the_revisions_when_it_was_lost() -> None:
    fixed = make_stored(make_revision(), number=1)
    revision = make_revision(make_spec(model={"uri": URI, "revisionPolicy": "Track"}))
    tracked = make_stored(with_tracked_commit(revision, commit(2)), number=2)
    pins = merge_pins((), [tracked, fixed])
    assert [(pin.commit, pin.tracked) for pin in pins] == [(COMMIT, False), (commit(2), True)]
    assert merge_pins(pins, [tracked, fixed]) == pins


def with_tracked_commit(revision: Revision, at: str) -> Revision:
    intent = {**revision.intent, "model": {**revision.intent["model"], "trackedCommit": at}}
    return replace(revision, intent=intent, commit=at)


def test_digest_of_a_commits_files_stays_as_it_was_first_seen() -> None:
    first = add_pin((make_pin(),), with_manifest(make_pin(), DIGEST, 5))
    assert [(pin.manifest_digest, pin.size_bytes) for pin in first] == [(DIGEST, 5)]
    assert add_pin(first, with_manifest(make_pin(), OTHER_DIGEST, 6)) == first
    assert with_manifest(first[0], OTHER_DIGEST, 6) == first[0]


def test_other_files_under_a_commit_are_refused() -> None:
    def report(at: str, digest: str) -> ModelReport:
        return ModelReport(commit=at, manifest_digest=digest, size_bytes=1, config={})

    pin = with_manifest(make_pin(), DIGEST, 5)
    assert refuse_report(pin, report(COMMIT, DIGEST)) is None
    for changed in (report(COMMIT, OTHER_DIGEST), report(commit(1), DIGEST)):
        refusal = refuse_report(pin, changed)
        assert refusal is not None
        assert (refusal.reason, refusal.lasting) == ("DigestMismatch", True)


@pytest.mark.parametrize("change", [{"tracked": 1}, {"size_bytes": "1"}, {"manifest_digest": "sha256:0"}])
def test_damaged_line_is_told_and_not_guessed(change: dict[str, object]) -> None:
    with pytest.raises(PinsDamaged, match="chat-pins"):
        parse_pins(json.dumps([{**asdict(make_pin()), **change}]), name="chat-pins")


def test_hand_written_pin_is_refused_by_the_names_of_what_it_lacks() -> None:
    with pytest.raises(PinsDamaged, match=r"a line lacks commit, refresh_token, resolved_at, revision, uri"):
        parse_pins('[{"x": 1}]', name="chat-pins")
    with pytest.raises(PinsDamaged, match="cannot be read"):
        parse_pins("[1]", name="chat-pins")


def test_line_of_a_newer_operator_is_read() -> None:
    assert parse_pins(json.dumps([{**asdict(make_pin()), "later": 1}]), name="x") == (make_pin(),)
