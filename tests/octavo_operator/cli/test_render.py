"""`octavo render`: what the operator would make, from a file alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from octavo_operator.cli.render_command import main
from tests.octavo_operator.builders import COMMIT, URI
from tests.octavo_operator.decide.test_sizing import CONFIG

IMAGE = "example.test/engine:1"


class Files:
    """An InferenceService and a config.json in a folder."""

    def __init__(self, folder: Path) -> None:
        self.service = folder / "service.yaml"
        self.config = folder / "config.json"
        self.config.write_text(json.dumps(CONFIG))

    def write(self, **spec: Any) -> None:
        body = {
            "apiVersion": "octavo.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": "chat"},
            "spec": {"model": {"uri": URI, "revision": COMMIT}, **spec},
        }
        self.service.write_text(yaml.safe_dump_all([{"kind": "Namespace"}, body]))

    def arguments(self, *more: str) -> list[str]:
        return [
            "-f",
            str(self.service),
            "--model-config",
            str(self.config),
            "--engine-image",
            IMAGE,
            *more,
        ]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def rendered(text: str) -> dict[str, Any]:
    return {body["kind"]: body for body in yaml.safe_load_all(text)}


def test_render_prints_every_object_without_a_network(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    files.write(replicas=3)
    assert main(files.arguments("-n", "prod")) == 0
    objects = rendered(capsys.readouterr().out)
    deployment = objects["Deployment"]
    assert {"ConfigMap", "ControllerRevision", "Service"} <= set(objects)
    assert deployment["spec"]["replicas"] == 3
    assert deployment["metadata"]["namespace"] == "prod"
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE
    assert all("ownerReferences" not in body["metadata"] for body in objects.values())


def test_render_shows_what_comes_once_the_revision_serves(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    files.write(routing={"httpRoute": {"parentRefs": [{"name": "gateway"}]}})
    assert main(files.arguments()) == 0
    objects = rendered(capsys.readouterr().out)
    assert {"PodDisruptionBudget", "NetworkPolicy", "HTTPRoute"} <= set(objects)


def test_render_begins_with_the_fewest_replicas_when_the_operator_will_scale(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    files.write(autoscaling={"minReplicas": 2, "maxReplicas": 5})
    assert main(files.arguments()) == 0
    assert rendered(capsys.readouterr().out)["Deployment"]["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    ("spec", "more", "code", "words"),
    [
        pytest.param({"resources": {"memory": "64Mi"}}, (), 1, "InsufficientMemory", id="no memory"),
        pytest.param({"replicas": 0}, (), 2, "spec.replicas", id="bad field"),
        pytest.param({"replicas": "2"}, (), 2, "spec.replicas: must be an integer", id="text for a number"),
        pytest.param({"suspend": "no"}, (), 2, "spec.suspend: must be true or false", id="text for a truth"),
        pytest.param({"replcas": 2}, (), 2, "spec.replcas: is no field", id="unknown field"),
        pytest.param(
            {"rollout": {"canarySteps": [{"weightPercents": 5}]}},
            (),
            2,
            "spec.rollout.canarySteps[0].weightPercents: is no field of an InferenceService; perhaps "
            "weightPercent is meant",
            id="unknown field of a list",
        ),
        pytest.param(
            {"autoscaling": {"minReplicas": 5, "maxReplicas": 2}}, (), 2, "must be at most", id="bounds cross"
        ),
        pytest.param({"engine": {"args": ["--port=1"]}}, (), 2, "sets itself", id="reserved flag"),
        pytest.param({"model": {"uri": URI}}, (), 2, "--commit", id="words that move"),
        pytest.param({}, ("--commit", "abc"), 2, "--commit", id="no commit"),
        pytest.param({}, ("--engine-image", ""), 2, "--engine-image", id="no image"),
    ],
)
def test_render_says_what_is_wrong(
    files: Files,
    capsys: pytest.CaptureFixture[str],
    spec: dict[str, Any],
    more: tuple[str, ...],
    code: int,
    words: str,
) -> None:
    files.write(**spec)
    assert main(files.arguments(*more)) == code
    assert words in capsys.readouterr().err


def test_empty_field_is_as_absent(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    """As `rollout:` with nothing under it."""
    files.write(rollout=None, autoscaling=None)
    assert main(files.arguments()) == 0
    assert rendered(capsys.readouterr().out)["Deployment"]["spec"]["replicas"] == 1


def test_render_refuses_a_file_that_holds_no_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("kind: Namespace\n")
    assert main(["-f", str(path), "--engine-image", IMAGE]) == 2
    assert "must hold one InferenceService, got 0" in capsys.readouterr().err
