"""The user's overlay on pods: what is taken, what is refused and in which words, and the default spread."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from octavo.errors import InvalidSpec
from octavo_operator.api.spec.overlay import OVERLAY_FIELDS, OverlayMetadata, PodOverlay
from octavo_operator.decide.world import parse_spec
from octavo_operator.desired.resolver_pod import Question, build_resolver_pod
from tests.octavo_operator.builders import OWNER, URI, make_revision, make_spec

TOLERATIONS = [{"key": "gpu", "operator": "Exists"}]
OVERLAY: dict[str, Any] = {
    "metadata": {"labels": {"team": "search"}, "annotations": {"note": "ours"}},
    "spec": {
        "nodeSelector": {"pool": "models"},
        "tolerations": TOLERATIONS,
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "registry"}],
    },
}


def template_of(overlay: dict[str, Any] | None = None) -> dict[str, Any]:
    spec = make_spec(template=overlay) if overlay is not None else make_spec()
    return make_revision(spec).template


def test_overlay_adds_to_what_is_rendered() -> None:
    plain, laid = template_of(), template_of(OVERLAY)
    assert laid["metadata"]["labels"]["team"] == "search"
    assert laid["metadata"]["annotations"] == {"note": "ours"}
    added = {name: laid["spec"][name] for name in OVERLAY["spec"]}
    assert added == OVERLAY["spec"]
    assert [one["image"] for one in laid["spec"]["containers"]] == [
        one["image"] for one in plain["spec"]["containers"]
    ]
    assert laid["spec"]["securityContext"] == plain["spec"]["securityContext"]


def test_overlay_never_wins_over_the_operators_labels() -> None:
    """They are refused, by the API server too; and did they slip through, nothing would come of it."""
    labels = {"octavo.dev/service": "other", "app.kubernetes.io/managed-by": "me"}
    metadata = OverlayMetadata.model_construct(labels=labels, annotations={})
    spec = make_spec().model_copy(update={"template": PodOverlay.model_construct(metadata=metadata, spec={})})
    laid = make_revision(spec).template
    assert laid["metadata"]["labels"]["octavo.dev/service"] == "chat"
    assert laid["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "octavo"


def test_overlay_shares_nothing_with_the_spec_it_came_from() -> None:
    spec = make_spec(template=copy.deepcopy(OVERLAY))
    template = make_revision(spec).template
    template["spec"]["tolerations"][0]["key"] = "changed"
    assert make_revision(spec).template["spec"]["tolerations"] == TOLERATIONS


@pytest.mark.parametrize("empty", [None, [], {}, ""], ids=str)
def test_empty_field_is_as_absent(empty: Any) -> None:
    """The API server would store nothing for it, and the stored object differ from ours for ever."""
    field = {list: "tolerations", dict: "nodeSelector", str: "schedulerName"}.get(type(empty), "affinity")
    pod = template_of({"spec": {field: empty}})["spec"]
    assert field not in pod


def test_pods_spread_softly_over_nodes_and_zones_by_default() -> None:
    revision = make_revision()
    constraints = revision.template["spec"]["topologySpreadConstraints"]
    assert {one["topologyKey"] for one in constraints} == {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    }
    for one in constraints:
        assert (one["maxSkew"], one["whenUnsatisfiable"]) == (1, "ScheduleAnyway")
        assert one["labelSelector"]["matchLabels"]["octavo.dev/revision"] == revision.hash


def test_users_spread_replaces_the_default_and_is_about_the_revisions_own_pods() -> None:
    mine = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
    chosen = {**mine, "labelSelector": {"matchLabels": {"team": "search"}}}
    revision = make_revision(make_spec(template={"spec": {"topologySpreadConstraints": [mine, chosen]}}))
    own = {"matchLabels": {"octavo.dev/service": "chat", "octavo.dev/revision": revision.hash}}
    assert revision.template["spec"]["topologySpreadConstraints"] == [{**mine, "labelSelector": own}, chosen]


def test_resolver_is_placed_as_the_engine_is_and_started_anew_when_that_is_edited() -> None:
    model = make_spec().model
    plain = Question(model=model, revision="main", image="engine:1", hub_endpoint="")
    placed = replace(plain, overlay=make_spec(template=OVERLAY).template)
    pod = build_resolver_pod(OWNER, placed)["spec"]
    assert {name: pod[name] for name in OVERLAY["spec"]} == OVERLAY["spec"]
    assert placed.id != plain.id, "one that found no node would wait for ever"
    assert "tolerations" not in build_resolver_pod(OWNER, plain)["spec"]


def body_with(fields: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"model": {"uri": URI}, "template": {"spec": fields}}}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hostNetwork": True}, ["spec.template.spec.hostNetwork", "True", "remove it", "nodeSelector"]),
        ({"containers": [{"name": "engine"}]}, ["template.spec.containers", "use spec.engine"]),
        ({"volumes": [{"name": "x"}]}, ["template.spec.volumes", "spec.model.cache"]),
        ({"serviceAccountName": "admin"}, ["serviceAccountName", "'admin'", "no service-account token"]),
        ({"nodeSelector": ["a"]}, ["template.spec.nodeSelector", "must be an object", "['a']"]),
        ({"tolerations": "all"}, ["template.spec.tolerations", "must be a list of objects", "'all'"]),
        ({"imagePullSecrets": ["registry"]}, ["imagePullSecrets", "a list of objects", "['registry']"]),
        ({"priorityClassName": 5}, ["priorityClassName", "must be a text", "5"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_what_is_not_the_users_is_refused_with_a_way_out(fields: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(body_with(fields))
    for word in words:
        assert word in str(caught.value)


def test_long_values_are_shortened_in_a_refusal() -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(body_with({"containers": [{"name": "x" * 10_000}]}))
    assert len(str(caught.value)) < 400


def test_taken_fields_change_no_container() -> None:
    assert not {"containers", "initContainers", "volumes", "securityContext", "hostNetwork"} & set(
        OVERLAY_FIELDS
    )
