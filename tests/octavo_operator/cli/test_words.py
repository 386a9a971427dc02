"""What the commands print and choose, from bodies alone."""

from __future__ import annotations

import re
from typing import Any

import pytest
from kubernetes.client import ApiException

from octavo.errors import OctavoError
from octavo_operator.cli.cluster import NotFound, answered
from octavo_operator.cli.diff_command import changes_between, effect_on_pods, line_of
from octavo_operator.cli.pin_command import resolved_commit
from octavo_operator.cli.program import status_of
from octavo_operator.cli.revisions import (
    HistoryLine,
    asked_revision,
    find_revision,
    history_lines,
    previous_good,
)
from octavo_operator.cli.service_words import describe, listed
from octavo_operator.cli.status_command import exit_status
from octavo_operator.desired.controller_revision import build_controller_revision
from octavo_operator.desired.learned import Learned
from octavo_operator.desired.revision import revision_data
from tests.octavo_operator.builders import COMMIT, OWNER, URI, make_revision, make_spec

NOW = "2026-01-02T00:00:00Z"


def service_body(status: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "prod",
            "name": "chat",
            "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": make_spec(**sections).model_dump(mode="json", by_alias=True, exclude_none=True),
        "status": status or {},
    }


def revision_body(number: int, *, proven: str = "", **sections: Any) -> dict[str, Any]:
    data = revision_data(make_revision(make_spec(**sections)))
    return build_controller_revision(OWNER, data, number=number, learned=Learned(proven_at=proven))


def ready(status: str, *, reason: str = "Serving", generation: int = 2) -> dict[str, Any]:
    return {
        "observedGeneration": generation,
        "conditions": [
            {
                "type": "Ready",
                "status": status,
                "reason": reason,
                "message": "words",
                "observedGeneration": generation,
                "lastTransitionTime": "2026-01-01T23:00:00Z",
            }
        ],
    }


def stalled() -> dict[str, Any]:
    status = ready("False", reason="InsufficientMemory")
    status["conditions"].append({**status["conditions"][0], "type": "Stalled", "status": "True"})
    return status


@pytest.mark.parametrize(
    ("status", "code"),
    [
        pytest.param(ready("True"), 0, id="ready"),
        pytest.param(ready("False", reason="RolloutProgressing"), 1, id="on its way"),
        pytest.param(ready("True", generation=1), 1, id="ready before the last edit"),
        pytest.param({}, 1, id="never visited"),
        pytest.param(stalled(), 3, id="stalled"),
    ],
)
def test_exit_status_tells_how_the_service_does(status: dict[str, Any], code: int) -> None:
    assert exit_status(service_body(status)) == code


def test_description_says_what_is_wrong_and_since_when() -> None:
    text = describe(service_body(stalled()), NOW)
    assert "InsufficientMemory" in text
    assert "60m" in text
    assert f"{URI} at main" in text


def test_description_of_an_older_edit_says_so() -> None:
    assert "of an older edit" in describe(service_body(ready("True", generation=1)), NOW)


def test_list_has_a_line_for_a_service_that_was_never_visited() -> None:
    assert "prod       chat" in listed([service_body()], NOW)


def test_history_tells_what_serves_and_what_was_good() -> None:
    first, second = revision_body(1, proven=NOW), revision_body(2, model={"uri": URI, "revision": "v2"})
    status = {
        "currentRevision": first["data"]["hash"],
        "updateRevision": second["data"]["hash"],
        "lastKnownGood": {"revision": first["data"]["hash"]},
    }
    lines = history_lines(service_body(status), [first, second])
    assert [(line.number, line.roles) for line in lines] == [
        (1, ("serving", "last known good")),
        (2, ("wanted",)),
    ]
    assert lines[0].commit == COMMIT


def line(number: int, name: str, *, proven: str = "", roles: tuple[str, ...] = ()) -> HistoryLine:
    return HistoryLine(
        number=number,
        hash=name,
        words="",
        commit="",
        image="",
        created_at="",
        proven_at=proven,
        roles=roles,
    )


@pytest.mark.parametrize(
    ("wanted", "number"), [("1", 1), ("2", 2), ("1aaaaaaaaa", 1), ("1aa", 1), ("9", None), ("", None)]
)
def test_revision_is_found_by_number_or_by_the_beginning_of_its_hash(wanted: str, number: int | None) -> None:
    found = find_revision([line(1, "1aaaaaaaaa"), line(2, "2bbbbbbbbb")], wanted)
    assert (found.number if found else None) == number


def test_rollback_goes_to_what_serves_when_what_was_asked_for_never_did() -> None:
    lines = [
        line(1, "a", proven="2026-01-01T00:00:00Z", roles=("serving",)),
        line(2, "b", proven="2026-01-02T00:00:00Z"),
        line(3, "c", roles=("wanted",)),
    ]
    chosen = previous_good(lines, "c")
    assert chosen is not None
    assert chosen.hash == "a"


def test_rollback_goes_to_the_good_one_before_when_the_asked_one_serves() -> None:
    lines = [
        line(1, "a", proven="2026-01-01T00:00:00Z"),
        line(2, "b"),
        line(3, "c", proven="2026-01-03T00:00:00Z", roles=("wanted", "serving")),
    ]
    chosen = previous_good(lines, "c")
    assert chosen is not None
    assert chosen.hash == "a"


@pytest.mark.parametrize(
    ("status", "asked"),
    [
        pytest.param({"observedGeneration": 2, "updateRevision": "b"}, "b", id="seen"),
        pytest.param({"observedGeneration": 1, "updateRevision": "a"}, None, id="not seen yet"),
        pytest.param(
            {
                "observedGeneration": 2,
                "updateRevision": "a",
                "conditions": [{"type": "Stalled", "status": "True", "reason": "InvalidSpec"}],
            },
            None,
            id="cannot be read",
        ),
        pytest.param({}, None, id="never visited"),
    ],
)
def test_rollback_knows_when_the_operator_has_not_read_what_is_asked_for(
    status: dict[str, Any], asked: str | None
) -> None:
    """It went to the revision before the one that served: the asked one was taken for the serving one."""
    assert asked_revision(service_body(status)) == asked


def test_diff_tells_of_an_edit_that_mends_words_that_cannot_be_read() -> None:
    before = {"spec": {"model": {"uri": URI}, "template": {"spec": {"hostNetwork": True}}}}
    after = {"spec": {"model": {"uri": URI}}}
    assert "exchanged for those of a new one" in effect_on_pods(before, after, [])


def test_diff_tells_of_the_new_revision_that_following_a_branch_makes() -> None:
    """It said that no pod is restarted."""
    fixed, followed = service_body(), service_body(model={"uri": URI, "revisionPolicy": "Track"})
    assert "the revision that follows main" in effect_on_pods(fixed, followed, [])
    assert "exchanged for those of" in effect_on_pods(followed, fixed, [])
    assert "none is restarted" in effect_on_pods(followed, followed, [])
    pinned = service_body(model={"uri": URI, "revisionPolicy": "RequirePinned"})
    assert "none is restarted" in effect_on_pods(fixed, pinned, [])


def resolved_body(status: str, generation: int) -> dict[str, Any]:
    condition = {"type": "ModelResolved", "status": status, "observedGeneration": generation}
    model = {"requestedRevision": "main", "resolvedRevision": COMMIT}
    return service_body({"observedGeneration": 2, "model": model, "conditions": [condition]})


def test_pin_is_of_the_words_that_there_are() -> None:
    assert resolved_commit(resolved_body("True", 2)) == COMMIT


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(resolved_body("True", 1), id="of an earlier edit"),
        pytest.param(resolved_body("Unknown", 2), id="being looked up"),
        pytest.param(service_body(), id="never visited"),
    ],
)
def test_pin_is_none_while_the_words_are_not_resolved(body: dict[str, Any]) -> None:
    """Another repository under the same branch got the commit of the one before."""
    with pytest.raises(NotFound, match="octavo status"):
        resolved_commit(body)


def test_rollback_has_nowhere_to_go_when_nothing_else_was_good() -> None:
    assert previous_good([line(1, "a", proven=NOW), line(2, "b")], "a") is None


def test_diff_names_each_field_before_and_after() -> None:
    before, after = {"replicas": 1, "model": {"uri": URI}}, {"replicas": 2, "model": {"uri": URI, "x": "y"}}
    assert list(map(line_of, changes_between(before, after))) == [
        "spec.replicas: 1 → 2",
        'spec.model.x: absent → "y"',
    ]


def test_diff_says_what_becomes_of_the_pods() -> None:
    old, new = service_body(), service_body(model={"uri": URI, "revision": "v2"})
    kept = history_lines(old, [revision_body(1, proven=NOW, model={"uri": URI, "revision": "v2"})])
    assert "first ones" in effect_on_pods({}, old, [])
    assert "none is restarted" in effect_on_pods(old, service_body(replicas=3), [])
    assert "new one, revision " in effect_on_pods(old, new, [])
    assert "revision 1" in effect_on_pods(old, new, kept)
    assert COMMIT in effect_on_pods(old, new, kept)


@pytest.mark.parametrize(
    ("body", "words", "status"),
    [
        pytest.param("404 page not found\n", "is Octavo installed?", 4, id="no definition"),
        pytest.param('{"kind": "Status", "message": "x not found"}', "x not found", 5, id="no object"),
    ],
)
def test_cluster_without_the_definition_is_told_from_a_service_that_is_not_there(
    body: str, words: str, status: int
) -> None:
    def ask() -> dict[str, Any]:
        error = ApiException(status=404, reason="Not Found")
        error.body = body
        raise error

    with pytest.raises(OctavoError, match=re.escape(words)) as raised:
        answered(ask, "InferenceService prod/chat")
    assert status_of(raised.value) == status
