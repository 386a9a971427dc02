"""Intent, hash and pins: the same words, the same weights, the same template."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidSpec
from octavo_operator.api.crd import build_schema
from octavo_operator.decide.intent import build_intent, hash_intent
from octavo_operator.decide.pinning import add_pin, find_pin, is_commit
from octavo_operator.decide.world import Children, parse_world
from octavo_operator.desired.controller_revision import build_controller_revision
from octavo_operator.desired.learned import NOTHING, Learned
from octavo_operator.desired.pins import MAX_PINS, Pin, PinsDamaged, build_pins
from octavo_operator.desired.revision import revision_data
from octavo_operator.desired.service import build_service
from tests.octavo_operator.builders import (
    COMMIT,
    OWNER,
    URI,
    make_pin,
    make_revision,
    make_spec,
)


def hash_of(**sections: object) -> str:
    return hash_intent(build_intent(make_spec(**sections)))


NEW_REVISION: list[dict[str, Any]] = [
    {"model": {"uri": URI, "revision": "v2"}},
    {"model": {"uri": "hf://organization/other"}},
    {"model": {"uri": URI, "refreshToken": "again"}},
    {"model": {"uri": URI, "servedName": "gpt"}},
    {"engine": {"image": "example.test/engine:2"}},
    {"engine": {"maxModelLen": 512}},
    {"engine": {"maxSequences": 2}},
    {"engine": {"kvCache": {"dtype": "Float32"}}},
    {"engine": {"kvCache": {"blockTokens": 32}}},
    {"engine": {"kvCache": {"forSequences": 2}}},
    {"engine": {"args": ["--dtype=float32"]}},
    {"engine": {"env": [{"name": "A", "value": "1"}]}},
    {"resources": {"cpu": "1"}},
    {"resources": {"memory": "2Gi"}},
    {"rollout": {"drainSeconds": 30}},
    {"routing": {"port": 9000}},
    {"model": {"uri": URI, "credentialsSecretRef": {"name": "token"}}},
    {"model": {"uri": URI, "cache": {"persistentVolumeClaim": "models"}}},
    {"engine": {"prefixCaching": False}},
    {"engine": {"apiKeySecretRef": {"name": "keys"}}},
    {"engine": {"kvCache": {"oversizePolicy": "ShrinkContext"}}},
    {"accelerator": {"type": "L4-24GB"}},
    {"accelerator": {"type": "L4-24GB", "count": 2}},
    {"accelerator": {"type": "L4-24GB", "memoryPercent": 80}},
    {"template": {"metadata": {"labels": {"team": "search"}}}},
    {"template": {"metadata": {"annotations": {"note": "ours"}}}},
    {"template": {"spec": {"nodeSelector": {"pool": "models"}}}},
]
STEPS = [{"weightPercent": 50}]
GATE = {
    "load": False,
    "slo": {"minRequests": 5, "maxAttainmentDropPercent": 3},
    "quality": {"configMapRef": {"name": "probes"}, "minMatchPercent": 90},
}
NO_RESTART: list[dict[str, Any]] = [
    {"replicas": 5},
    {"autoscaling": {"mode": "SLO", "minReplicas": 2, "maxReplicas": 8}},
    {
        "autoscaling": {
            "maxReplicas": 8,
            "slo": {"ttftMilliseconds": 1, "tpotMilliseconds": 1, "objectivePercent": 90},
            "scaleDown": {"stabilizationWindowSeconds": 1, "maxPercent": 1},
            "fallback": {"replicas": 2},
        }
    },
    {"rollout": {"progressDeadlineSeconds": 60, "revisionHistoryLimit": 1}},
    {"rollout": {"strategy": "Canary", "canarySteps": STEPS, "gate": GATE}},
    {"model": {"uri": URI, "revisionPolicy": "Track"}},
    {"routing": {"httpRoute": {"parentRefs": [{"name": "gateway"}], "hostnames": ["a.test"]}}},
    {"routing": {"inferencePool": {"endpointPickerRef": {"name": "epp", "port": 9003}}}},
    {"suspend": True},
    {"template": {"metadata": {}, "spec": {}}},
]
ONE_VALUE_ONLY = {"spec.autoscaling.fallback.behavior", "spec.rollout.onFailure"}


@pytest.mark.parametrize("edit", NEW_REVISION, ids=str)
def test_edit_makes_another_revision(edit: dict[str, object]) -> None:
    assert hash_of(**edit) != hash_of()


@pytest.mark.parametrize("edit", NO_RESTART, ids=str)
def test_edit_restarts_nothing(edit: dict[str, object]) -> None:
    assert hash_of(**edit) == hash_of()


def fields_of(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Every field that holds a value or a list."""
    children = schema.get("properties", {})
    yield from [path] if not children else []
    for name, child in children.items():
        yield from fields_of(child, f"{path}.{name}")


def written(value: object, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    if not isinstance(value, Mapping) or "properties" not in schema:
        yield path
        return
    for name, one in value.items():
        yield from written(one, schema["properties"][name], f"{path}.{name}")


def test_what_an_edit_does_is_known_of_every_field() -> None:
    """A new field either reaches the pods as a revision or says why it need not."""
    schema = build_schema()["properties"]["spec"]
    edited = {one for edit in (*NEW_REVISION, *NO_RESTART) for one in written(edit, schema, "spec")}
    assert set(fields_of(schema, "spec")) - edited == ONE_VALUE_ONLY


def test_hash_is_what_earlier_operators_computed() -> None:
    """If this fails, an upgrade would restart every engine: add fields only where they are set."""
    assert hash_of() == "9c1a4332c3"
    assert hash_of(engine={"maxSequences": 4}, resources={"cpu": "500m", "memory": "2Gi"}) == "dd28c6fe49"


def test_first_answer_stands_when_words_are_resolved_twice() -> None:
    first, second = make_pin(), make_pin(commit="f" * 40)
    pins = add_pin(add_pin((), first), second)
    assert find_pin(pins, make_spec().model) == first


def test_words_differ_by_refresh_token() -> None:
    again = make_spec(model={"uri": URI, "refreshToken": "again"})
    assert find_pin((make_pin(),), again.model) is None


@given(st.lists(st.integers(0, 300), max_size=300))
def test_pins_hold_the_latest_lines_each_once(numbers: list[int]) -> None:
    pins: tuple[Pin, ...] = ()
    for number in numbers:
        pins = add_pin(pins, make_pin(make_spec(model={"uri": URI, "revision": f"v{number}"})))
    assert len(pins) <= MAX_PINS
    assert len({pin.words for pin in pins}) == len(pins)


@pytest.mark.parametrize(
    ("text", "answer"), [(COMMIT, True), ("main", False), (COMMIT.upper(), False), (COMMIT[:39], False)]
)
def test_commit_is_told_from_a_name(text: str, answer: bool) -> None:
    assert is_commit(text) is answer


def service_body(**spec: object) -> dict[str, Any]:
    metadata = {"namespace": OWNER.namespace, "name": OWNER.name, "uid": OWNER.uid, "generation": 7}
    return {"metadata": metadata, "spec": {"model": {"uri": URI}, **spec}}


def stored_body(manifest: dict[str, Any]) -> dict[str, Any]:
    """As the API server would give it back."""
    body: dict[str, Any] = json.loads(json.dumps(manifest))
    body["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return body


def test_world_is_read_back_as_it_was_built() -> None:
    revision = make_revision()
    children = Children(
        revisions=(
            stored_body(
                build_controller_revision(
                    OWNER, revision_data(revision), number=3, learned=Learned(proven_at="T")
                )
            ),
        ),
        config_maps=(stored_body(build_pins(OWNER, (make_pin(),), {})),),
        services=(stored_body(build_service(OWNER, port=8000, serving=revision.hash)),),
    )
    world = parse_world(service_body(), children)
    assert world.generation == 7
    assert world.pins == (make_pin(),)
    assert world.selected == revision.hash
    assert world.numbers == {revision.hash: 3}
    assert world.proven == {revision.hash}
    assert world.revisions[revision.hash].revision == revision


def test_world_remembers_what_served_when_somebody_meddles_with_the_service() -> None:
    revision = make_revision()
    stored = stored_body(
        build_controller_revision(OWNER, revision_data(revision), number=1, learned=Learned(proven_at="T"))
    )
    meddled = build_service(OWNER, port=8000, serving="another")
    body = {**service_body(), "status": {"currentRevision": revision.hash}}
    for services in ((), (meddled,)):
        world = parse_world(body, Children(revisions=(stored,), services=services))
        assert world.selected == revision.hash


def test_pins_are_made_from_all_revisions_kept_when_somebody_deletes_the_config_map() -> None:
    specs = [make_spec(model={"uri": URI, "revision": f"v{number}"}) for number in (1, 2)]
    bodies = [
        stored_body(
            build_controller_revision(
                OWNER, revision_data(make_revision(spec, str(number) * 40)), number=number, learned=NOTHING
            )
        )
        for number, spec in enumerate(specs)
    ]
    world = parse_world(service_body(), Children(revisions=tuple(reversed(bodies))))
    assert [(pin.revision, pin.commit) for pin in world.pins] == [("v1", "0" * 40), ("v2", "1" * 40)]


def test_same_words_keep_their_commit_when_somebody_edits_the_config_map() -> None:
    edited = stored_body(build_pins(OWNER, (make_pin(commit="f" * 40),), {}))
    record = stored_body(
        build_controller_revision(OWNER, revision_data(make_revision()), number=1, learned=NOTHING)
    )
    world = parse_world(service_body(), Children(revisions=(record,), config_maps=(edited,)))
    assert [pin.commit for pin in world.pins] == [COMMIT]


GOOD_LINE = json.dumps(asdict(make_pin()))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[{]", id="cut off"),
        pytest.param("{}", id="no list"),
        pytest.param("null", id="null"),
        pytest.param("[1]", id="no line"),
        pytest.param(f"[{GOOD_LINE.replace(COMMIT, 'main')}]", id="no commit"),
        pytest.param(f"[{GOOD_LINE.replace(COMMIT, '../../etc')}]", id="a path"),
        pytest.param(f"[{GOOD_LINE.replace(URI, '')}]", id="no uri"),
        pytest.param(f"[{GOOD_LINE.replace('2026-01-01T', 'yesterday ')}]", id="no time"),
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_world_refuses_what_a_hand_has_made_of_it(text: str) -> None:
    pins = build_pins(OWNER, (), {})
    pins["data"]["pins.json"] = text
    with pytest.raises(PinsDamaged, match=r"ConfigMap chat-pins.*kubectl delete configmap chat-pins"):
        parse_world(service_body(), Children(config_maps=(pins,)))


def test_world_refuses_a_spec_that_an_older_schema_let_through() -> None:
    with pytest.raises(InvalidSpec, match=r"spec\.replicas: .* got 0"):
        parse_world(service_body(replicas=0), Children())


@pytest.mark.parametrize("name", ["a.b", "3b-model", "x" * 41, "trailing-"])
def test_world_refuses_a_name_that_an_older_schema_let_through(name: str) -> None:
    body = service_body()
    body["metadata"]["name"] = name
    with pytest.raises(InvalidSpec, match=r"metadata\.name: .*make a new InferenceService"):
        parse_world(body, Children())


def test_world_goes_on_serving_when_somebody_deletes_the_record_of_what_serves() -> None:
    body = {**service_body(), "status": {"currentRevision": "aaa"}}
    world = parse_world(body, Children(services=(build_service(OWNER, port=8000, serving="aaa"),)))
    assert world.selected == "aaa"
    assert world.proven == {"aaa"}


def test_world_goes_on_serving_when_somebody_turns_the_service_to_a_candidate() -> None:
    record = stored_body(
        build_controller_revision(OWNER, revision_data(make_revision()), number=2, learned=NOTHING)
    )
    body = {**service_body(), "status": {"currentRevision": "aaa"}}
    turned = build_service(OWNER, port=8000, serving=make_revision().hash)
    assert parse_world(body, Children(revisions=(record,), services=(turned,))).selected == "aaa"


def test_world_leaves_revisions_of_a_newer_operator_alone() -> None:
    body = stored_body(
        build_controller_revision(OWNER, revision_data(make_revision()), number=1, learned=NOTHING)
    )
    del body["data"]["plan"]["kvBlocks"]
    assert parse_world(service_body(), Children(revisions=(body,))).revisions == {}


def test_world_reads_revisions_of_an_operator_that_stored_more() -> None:
    body = stored_body(
        build_controller_revision(OWNER, revision_data(make_revision()), number=1, learned=NOTHING)
    )
    body["data"]["plan"]["speculation"] = {"draft": 1}
    body["data"]["manifestDigest"] = "sha256:0"
    world = parse_world(service_body(), Children(revisions=(body,)))
    (stored,) = world.revisions.values()
    assert stored.data == body["data"], "the API server refuses any change of it, and with it the proof"
