"""Edits that people apply: back to a revision, or to pinned words; and whose fields they would touch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidSpec
from octavo_operator.decide.edits import apply_patch, changed_paths, merge_patch, plan_pin, plan_return
from octavo_operator.decide.intent import build_intent, hash_intent
from octavo_operator.decide.ownership import last_applier, machine_owners
from tests.octavo_operator.builders import COMMIT, URI, make_spec

documents = st.recursive(
    st.dictionaries(st.sampled_from("abcd"), st.integers() | st.text() | st.lists(st.integers())),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner | st.integers()),
)
SPECS: tuple[dict[str, Any], ...] = (
    {},
    {"model": {"uri": URI, "revision": "v2"}},
    {"model": {"uri": URI, "credentialsSecretRef": {"name": "token"}}},
    {"engine": {"args": ["--dtype=float32"], "prefixCaching": False}},
    {"engine": {"maxModelLen": 512, "env": [{"name": "A", "value": "1"}]}},
    {"accelerator": {"type": "L4-24GB"}, "template": {"metadata": {"labels": {"team": "search"}}}},
    {"resources": {"cpu": "500m", "memory": "2Gi"}, "rollout": {"drainSeconds": 5}},
)


def raw(**sections: Any) -> dict[str, Any]:
    """As the API server stores it, defaults and all."""
    return make_spec(**sections).model_dump(mode="json", by_alias=True, exclude_none=True)


@given(documents, documents)
def test_patch_makes_one_document_into_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert apply_patch(before, merge_patch(before, after)) == after


@given(documents)
def test_patch_is_empty_when_nothing_changes(document: dict[str, Any]) -> None:
    assert merge_patch(document, document) == {}


@pytest.mark.parametrize("earlier", SPECS, ids=str)
@pytest.mark.parametrize("now", SPECS, ids=str)
def test_return_asks_for_the_very_revision_whatever_spec_says_now(
    earlier: dict[str, Any], now: dict[str, Any]
) -> None:
    intent = build_intent(make_spec(**earlier))
    patch = plan_return(raw(**now), intent, wanted=hash_intent(intent))
    returned = apply_patch(raw(**now), patch)
    assert hash_intent(build_intent(make_spec(**returned))) == hash_intent(intent)
    assert bool(patch) == (earlier != now)


def test_return_leaves_alone_what_makes_no_revision() -> None:
    earlier = build_intent(make_spec(model={"uri": URI, "revision": "v1"}))
    now = raw(model={"uri": URI, "revision": "v2"}, replicas=7, autoscaling={"maxReplicas": 9})
    patch = plan_return(now, earlier, wanted=hash_intent(earlier))
    assert list(changed_paths(patch)) == ["spec.model.revision"]


def test_return_pins_the_commit_when_the_words_followed_a_branch() -> None:
    earlier = build_intent(make_spec(), tracked_commit=COMMIT)
    patch = plan_return(raw(), earlier, wanted=hash_intent(earlier))
    assert patch == {"model": {"revision": COMMIT}}


@pytest.mark.parametrize("laid", [{}, {"metadata": {"labels": {"team": "search"}}}], ids=str)
def test_return_is_possible_from_words_that_cannot_be_read(laid: dict[str, Any]) -> None:
    """A rollback was refused by the very edit that it was to undo."""
    earlier = build_intent(make_spec(**({"template": laid} if laid else {})))
    now = {**raw(replicas=3), "template": {"metadata": {}, "spec": {"hostNetwork": True}}}
    patch = plan_return(now, earlier, wanted=hash_intent(earlier))
    returned = apply_patch(now, patch)
    assert hash_intent(build_intent(make_spec(**returned))) == hash_intent(earlier)
    assert set(patch) == {"template"}


def test_return_names_a_field_that_it_does_not_touch_and_that_cannot_be_read() -> None:
    earlier = build_intent(make_spec())
    steps = [{"weightPercent": 50}, {"weightPercent": 10}]
    now = {**raw(), "rollout": {"canarySteps": steps}}
    with pytest.raises(InvalidSpec, match=r"spec\.rollout\.canarySteps"):
        plan_return(now, earlier, wanted=hash_intent(earlier))


def test_return_is_refused_when_the_stored_words_lead_elsewhere() -> None:
    intent = build_intent(make_spec()) | {"model": {"uri": URI, "revision": "main", "colour": "red"}}
    with pytest.raises(InvalidSpec, match="take the edit from Git"):
        plan_return(raw(), intent, wanted=hash_intent(intent))


def test_pin_names_the_commit_and_forbids_words_that_move() -> None:
    assert plan_pin(raw(), COMMIT) == {"model": {"revision": COMMIT, "revisionPolicy": "RequirePinned"}}


def test_pin_is_empty_when_the_words_are_pinned() -> None:
    pinned = raw(model={"uri": URI, "revision": COMMIT, "revisionPolicy": "RequirePinned"})
    assert plan_pin(pinned, COMMIT) == {}


def managed(manager: str, fields: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": fields}, **more}


def with_managers(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"managedFields": list(entries)}}


REVISION_FIELD = {"f:model": {"f:uri": {}, "f:revision": {}}}


@pytest.mark.parametrize(
    ("manager", "owned"),
    [
        ("argocd-controller", True),
        ("kustomize-controller", True),
        ("helm", True),
        ("kubectl", False),
        ("kubectl-client-side-apply", False),
        ("octavo-cli", False),
    ],
)
def test_machine_owns_a_field_and_a_person_does_not(manager: str, owned: bool) -> None:
    body = with_managers(managed(manager, REVISION_FIELD))
    assert machine_owners(body, ["spec.model.revision"]) == ((manager,) if owned else ())


@pytest.mark.parametrize("path", ["spec.replicas", "spec.model.refreshToken"])
def test_machine_does_not_own_other_fields(path: str) -> None:
    assert machine_owners(with_managers(managed("argocd-controller", REVISION_FIELD)), [path]) == ()


def test_status_writers_own_nothing_of_spec() -> None:
    body = with_managers(managed("octavo-operator", REVISION_FIELD, subresource="status"))
    assert machine_owners(body, ["spec.model.revision"]) == ()


def test_last_applier_is_the_one_of_the_latest_time() -> None:
    body = with_managers(
        managed("flux", {}, time="2026-01-02T00:00:00Z"),
        managed("kubectl", {}, time="2026-01-01T00:00:00Z"),
    )
    assert last_applier(body) == "flux"
    assert last_applier({}) is None
