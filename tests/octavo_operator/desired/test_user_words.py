"""What a user writes never becomes a program: it is one word of a command line, or it is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidSpec
from octavo_operator.api.spec import InferenceServiceSpec
from octavo_operator.decide.world import parse_spec
from octavo_operator.desired.resolver_pod import Question, build_resolver_pod
from tests.octavo_operator.builders import OWNER, URI, make_revision, make_spec

SHELLS = ("sh", "bash", "ash", "env", "python")


def pods_of(spec: InferenceServiceSpec) -> list[dict[str, Any]]:
    question = Question(model=spec.model, revision=spec.model.revision, image="engine:1", hub_endpoint="")
    return [make_revision(spec).template["spec"], build_resolver_pod(OWNER, question)["spec"]]


def containers_of(spec: InferenceServiceSpec) -> list[dict[str, Any]]:
    return [
        container
        for pod in pods_of(spec)
        for container in (*pod.get("initContainers", ()), *pod["containers"])
    ]


@given(st.lists(st.text(max_size=40), max_size=5))
def test_engine_arguments_stay_words_whatever_they_hold(words: list[str]) -> None:
    spec = make_spec(engine={"args": words})
    for container in containers_of(spec):
        assert container["command"] == ["octavo-engine"]
        assert not any(shell in container["command"][0].split("/") for shell in SHELLS)
    engine = containers_of(spec)[1]
    assert engine["args"][len(engine["args"]) - len(words) :] == words


@pytest.mark.parametrize(
    "word", ["--x=`id`", "--x=$(touch /tmp/x)", "--x=;reboot", "--x=a && b", "--x=' \" \n"], ids=repr
)
def test_shell_syntax_in_an_argument_is_passed_on_as_it_is(word: str) -> None:
    engine = containers_of(make_spec(engine={"args": [word]}))[1]
    assert engine["args"][-1] == word


@pytest.mark.parametrize(
    "uri",
    [
        "hf://organization/model$(touch /tmp/x)",
        "hf://organization/`id`",
        "hf://organization/model;id",
        "hf://../../etc",
        "pvc://models/../../etc",
        "pvc://models/a b;id",
        "pvc://models//etc",
        "oci://registry.example/../model",
        "file:///etc/passwd",
    ],
)
def test_place_that_is_no_place_is_refused(uri: str) -> None:
    with pytest.raises(InvalidSpec, match=r"spec\.model\.uri"):
        parse_spec({"spec": {"model": {"uri": uri}}})


@pytest.mark.parametrize("name", ["other-namespace/hf-token", "../hf-token", "", "HF_TOKEN"])
def test_secret_of_another_namespace_cannot_be_named(name: str) -> None:
    with pytest.raises(InvalidSpec, match="credentialsSecretRef"):
        parse_spec({"spec": {"model": {"uri": URI, "credentialsSecretRef": {"name": name}}}})


def test_rotated_token_is_read_anew_without_a_rollout() -> None:
    """A mounted file follows its Secret; an environment variable or a subPath would keep the first token."""
    spec = make_spec(model={"uri": URI, "credentialsSecretRef": {"name": "hf-token"}})
    for pod in pods_of(spec):
        text = json.dumps(pod)
        assert text.count("hf-token") == 1, "by name, in one volume"
        assert "secretKeyRef" not in text
        assert "envFrom" not in text
        assert "subPath" not in text


def test_numbers_are_written_out_in_arguments() -> None:
    engine = containers_of(make_spec(engine={"args": ["--max-num-batched-tokens", "2000000"]}))[1]
    assert "2000000" in engine["args"]
    assert not any("e+" in word for word in engine["args"])
