"""`octavo status | history | rollback | pin | diff` against a real API server and the running operator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from octavo_operator.cli import (
    diff_command,
    history_command,
    pin_command,
    render_command,
    rollback_command,
    status_command,
)
from octavo_operator.desired.difference import difference
from tests.cluster.stage import PLURAL, REPO, Stage, wait_for

pytestmark = pytest.mark.cluster

COMMANDS = {
    "status": status_command.main,
    "history": history_command.main,
    "rollback": rollback_command.main,
    "pin": pin_command.main,
    "diff": diff_command.main,
}
PLURALS = {
    "Deployment": "deployments",
    "ControllerRevision": "controllerrevisions",
    "NetworkPolicy": "networkpolicies",
    "PodDisruptionBudget": "poddisruptionbudgets",
}
"""Kinds of which each revision has one, and that do not change once it serves."""


class Person:
    """Somebody with a kubeconfig and a terminal."""

    def __init__(self, stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
        self.stage = stage
        self.capsys = capsys

    def run(self, command: str, *arguments: str) -> tuple[int, str]:
        """Exit status, and everything that was printed."""
        place = ("--kubeconfig", str(self.stage.cluster.kubeconfig), "-n", self.stage.namespace)
        self.capsys.readouterr()
        code = COMMANDS[command]([*place, *arguments])
        printed = self.capsys.readouterr()
        return code, printed.out + printed.err

    def run_json(self, command: str, *arguments: str) -> tuple[int, Any]:
        code, text = self.run(command, *arguments, "--output", "json")
        return code, json.loads(text)

    def edit(self, patch: dict[str, Any], *, manager: str = "kubectl-edit") -> None:
        """Under a field manager of one's choice: as a person, or as a GitOps tool."""
        self.stage.client.patch(
            self.stage.path(PLURAL, "tiny"),
            params={"fieldManager": manager},
            headers={"Content-Type": "application/merge-patch+json"},
            content=json.dumps({"spec": patch}),
        ).raise_for_status()


@pytest.fixture
def person(stage: Stage, capsys: pytest.CaptureFixture[str]) -> Person:
    return Person(stage, capsys)


def serve_two(stage: Stage, person: Person) -> tuple[str, str]:
    """Two good revisions, the second of them made by a person's own edit."""
    first, second = stage.add_commit("one"), stage.add_commit("two")
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(service_of(first)))
    stage.make_ready(stage.wait_pods(first))
    stage.wait_condition("Ready", "True")
    person.edit({"model": {"revision": second}})
    stage.make_ready(stage.wait_pods(second))
    stage.wait_condition("Ready", "True")
    return first, second


def service_of(revision: str, **spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "octavo.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "tiny"},
        "spec": {
            "model": {"uri": f"hf://{REPO}", "revision": revision},
            "resources": {"cpu": "500m"},
            **spec,
        },
    }


def test_status_follows_a_service_from_its_first_pod_to_ready(stage: Stage, person: Person) -> None:
    commit = stage.add_commit("one")
    assert person.run("status", "tiny")[0] == 5
    stage.apply()
    pods = stage.wait_pods(commit)
    assert person.run("status", "tiny")[0] == 1
    stage.make_ready(pods)
    stage.wait_condition("Ready", "True")
    code, text = person.run("status", "tiny")
    assert code == 0
    assert commit in text
    assert "KV blocks" in text
    listed, text = person.run("status")
    assert listed == 0
    assert "tiny" in text
    assert person.run_json("status", "tiny")[1]["status"]["model"]["resolvedRevision"] == commit


def test_status_tells_what_somebody_must_change(stage: Stage, person: Person) -> None:
    stage.add_commit("one")
    stage.apply(resources={"cpu": "500m", "memory": "64Mi"})
    stage.wait_condition("Stalled", "True")
    code, text = person.run("status", "tiny")
    assert code == 3
    assert "InsufficientMemory" in text


def test_rollback_gives_the_commit_and_the_template_of_before(stage: Stage, person: Person) -> None:
    first, _ = serve_two(stage, person)
    before = {line["number"]: line for line in person.run_json("history", "tiny")[1]}
    assert before[2]["roles"][:2] == ["wanted", "serving"]
    code, text = person.run("rollback", "tiny")
    assert code == 0, text
    stage.make_ready(stage.wait_pods(first))
    stage.wait_condition("Ready", "True")
    assert stage.service()["status"]["currentRevision"] == before[1]["hash"]
    assert stage.service()["status"]["model"]["resolvedRevision"] == first
    assert "already" in person.run("rollback", "tiny", "--to", "1")[1]


def test_rollback_undoes_an_edit_that_the_operator_cannot_read(stage: Stage, person: Person) -> None:
    """To what serves, and not to the revision before it."""
    _, second = serve_two(stage, person)
    serving = stage.service()["status"]["currentRevision"]
    person.edit({"template": {"spec": {"hostNetwork": True}}})
    stage.wait_condition("Stalled", "True", reason="InvalidSpec")
    code, text = person.run("rollback", "tiny")
    assert (code, "revision 2" in text) == (0, True), text
    stage.wait_condition("Ready", "True")
    assert stage.service()["status"]["currentRevision"] == serving
    assert stage.service()["spec"]["model"]["revision"] == second
    assert "template" not in stage.service()["spec"]


def test_rollback_prints_the_edit_for_git_when_a_machine_owns_the_field(stage: Stage, person: Person) -> None:
    first, second = serve_two(stage, person)
    person.edit({"model": {"revision": "main"}}, manager="argocd-controller")
    person.edit({"model": {"revision": second}}, manager="argocd-controller")
    stage.wait_condition("Ready", "True")
    code, text = person.run("rollback", "tiny", "--to", "1")
    assert code == 3
    assert "argocd-controller" in text
    assert yaml.safe_load(text.partition("\n\n")[2]) == {"spec": {"model": {"revision": first}}}
    assert stage.service()["spec"]["model"]["revision"] == second
    assert person.run("rollback", "tiny", "--to", "1", "--force", "--dry-run")[0] == 0
    assert stage.service()["spec"]["model"]["revision"] == second
    assert person.run("rollback", "tiny", "--to", "1", "--force")[0] == 0
    assert stage.service()["spec"]["model"]["revision"] == first


def test_rollback_names_the_revisions_there_are_when_the_wanted_one_is_none(
    stage: Stage, person: Person
) -> None:
    serve_two(stage, person)
    code, text = person.run("rollback", "tiny", "--to", "9")
    assert code == 5
    assert "there are 1 (" in text


def test_pin_prints_what_the_words_stand_for(stage: Stage, person: Person) -> None:
    commit = stage.add_commit("one")
    stage.serve(commit)
    code, edit = person.run_json("pin", "tiny")
    assert code == 0
    assert edit == {"spec": {"model": {"revision": commit, "revisionPolicy": "RequirePinned"}}}
    person.edit(edit["spec"])
    stage.wait_condition("ModelResolved", "True")
    assert "pinned already" in person.run("pin", "tiny")[1]


def test_pin_asks_the_hub_for_a_uri(stage: Stage, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = stage.add_commit("one")
    monkeypatch.setenv("HF_ENDPOINT", stage.hub.endpoint)
    code, edit = person.run_json("pin", f"hf://{REPO}")
    assert code == 0
    assert edit["spec"]["model"]["revision"] == commit
    assert person.run("pin", "hf://nobody/nothing")[0] == 4
    code, text = person.run("pin", "s3://bucket/model")
    assert code == 2
    assert "must begin with hf://" in text


def test_diff_tells_what_would_change_and_what_becomes_of_the_pods(
    stage: Stage, person: Person, tmp_path: Path
) -> None:
    first, second = serve_two(stage, person)
    path = tmp_path / "service.yaml"

    def diff(revision: str, **spec: object) -> tuple[int, str]:
        path.write_text(yaml.safe_dump(service_of(revision, **spec)))
        return person.run("diff", "-f", str(path))

    code, text = diff(second)
    assert (code, text.strip()) == (0, "no change")
    code, text = diff(second, replicas=3)
    assert code == 1
    assert "spec.replicas: 1 → 3" in text
    assert "none is restarted" in text
    code, text = diff(first)
    assert "pods: exchanged for those of revision 1" in text
    code, text = diff(first, replicas=0)
    assert code == 2
    assert "spec.replicas" in text
    assert stage.service()["spec"]["replicas"] == 1


def test_diff_tells_of_a_service_that_is_not_there_yet(stage: Stage, person: Person, tmp_path: Path) -> None:
    """It ended in a traceback."""
    path = tmp_path / "service.yaml"
    path.write_text(yaml.safe_dump(service_of("main")))
    code, text = person.run("diff", "-f", str(path))
    assert code == 1
    assert "pods: the first ones are made" in text
    assert f"hf://{REPO}" in text
    assert stage.list(PLURAL) == []
    path.write_text(yaml.safe_dump(service_of("main", replicas=0)))
    code, text = person.run("diff", "-f", str(path))
    assert code == 2
    assert "spec.replicas" in text


def test_commands_say_so_when_there_is_no_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_command.main(["--kubeconfig", str(tmp_path / "none")]) == 4
    assert "kubeconfig" in capsys.readouterr().err


def test_kubectl_finds_the_same_commands(stage: Stage) -> None:
    """By the name of a program on PATH; the person's kubeconfig goes along."""
    stage.serve(stage.add_commit("one"))
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    place = ("--namespace", stage.namespace, "--kubeconfig", str(stage.cluster.kubeconfig))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(stage.cluster.bin_dir / "kubectl"), "octavo", *words, *place],
            env={**os.environ, "PATH": programs},
            capture_output=True,
            text=True,
            timeout=60,
        )

    told = run("status", "tiny", "--output", "json")
    assert (told.returncode, json.loads(told.stdout)["name"]) == (0, "tiny")
    absent = run("status", "absent")
    assert absent.returncode != 0
    assert "octavo status: InferenceService" in absent.stderr


def test_diff_names_the_namespace_that_is_not_there(stage: Stage, person: Person, tmp_path: Path) -> None:
    path = tmp_path / "service.yaml"
    path.write_text(yaml.safe_dump(service_of("main")))
    code, text = person.run("diff", "-f", str(path), "-n", "absent")
    assert (code, 'namespaces "absent" not found' in text) == (5, True), text


@pytest.mark.parametrize("policy", ["ResolveOnce", "Track"])
def test_render_prints_what_the_operator_then_makes(
    stage: Stage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    policy: str,
) -> None:
    commit = stage.add_commit("one")
    path = tmp_path / "service.yaml"
    model = {"uri": f"hf://{REPO}", "revisionPolicy": policy}
    path.write_text(yaml.safe_dump(service_of("main", model=model)))
    monkeypatch.setenv("HF_ENDPOINT", stage.hub.endpoint)
    flags = ("-f", str(path), "-n", stage.namespace, "--engine-image", stage.engine_image, "--output", "json")
    assert render_command.main(flags) == 0
    rendered = {one["kind"]: one for one in json.loads(capsys.readouterr().out)}

    stage.serve(commit, model=model)
    for kind, plural in PLURALS.items():
        made = wait_for(lambda plural=plural: stage.list(plural, "octavo.dev/revision"), f"the {kind}")
        wanted = rendered[kind]
        wanted["metadata"].pop("annotations", None)
        found = {**made[0], "kind": kind, "apiVersion": wanted["apiVersion"]}
        assert (len(made), difference(wanted, found)) == (1, None), kind
