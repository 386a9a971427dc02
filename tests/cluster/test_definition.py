"""What the API server itself takes, refuses and explains, by the definition alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.stage import Refused, Stage

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        pytest.param("a" * 41, {}, "at most 40", id="name too long"),
        pytest.param("3b-model", {}, "start with a lower-case letter", id="name starts with a digit"),
        pytest.param("llama-3.1", {}, "start with a lower-case letter", id="name with a dot"),
        pytest.param(
            "tiny",
            {"autoscaling": {"minReplicas": 5, "maxReplicas": 2}},
            "must be at most",
            id="min above max",
        ),
        pytest.param(
            "tiny", {"autoscaling": {"minReplicas": 0, "maxReplicas": 3}}, "minReplicas", id="min 0"
        ),
        pytest.param("tiny", {"autoscaling": {"minReplicas": 3}}, "maxReplicas", id="no max"),
        pytest.param("tiny", {"engine": {"args": ["--port=1"]}}, "sets itself", id="reserved flag"),
        pytest.param(
            "tiny", {"engine": {"args": ["--model", "x"]}}, "sets itself", id="reserved flag, apart"
        ),
        pytest.param(
            "tiny",
            {"engine": {"env": [{"name": "HF_ENDPOINT", "value": "x"}]}},
            "HF_ENDPOINT",
            id="reserved env",
        ),
        pytest.param("tiny", {"model": {"uri": "s3://bucket/model"}}, "spec.model.uri", id="unknown scheme"),
        pytest.param("tiny", {"resources": {"memory": "lots"}}, "spec.resources.memory", id="no quantity"),
    ],
)
def test_api_server_refuses(quiet_stage: Stage, name: str, spec: dict[str, object], message: str) -> None:
    with pytest.raises(Refused, match=message):
        quiet_stage.apply(name, **spec)


def test_api_server_keeps_the_port_and_takes_plain_numbers(quiet_stage: Stage) -> None:
    quiet_stage.apply(resources={"cpu": 2})
    quiet_stage.apply(resources={"cpu": 2}, routing={"port": 8000})
    with pytest.raises(Refused, match="immutable"):
        quiet_stage.apply(routing={"port": 9000})
    body = quiet_stage.service()
    assert body["status"] == {"observedGeneration": -1}
    assert body["spec"]["rollout"]["drainSeconds"] == 120
    assert "autoscaling" not in body["spec"]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "manifests/samples").glob("*.yaml")), ids=lambda path: path.stem
)
def test_api_server_takes_each_sample(quiet_stage: Stage, path: Path) -> None:
    quiet_stage.kubectl("apply", "--server-side", "-f", str(path))


def test_every_field_is_explained(quiet_stage: Stage) -> None:
    text = quiet_stage.kubectl("explain", "inferenceservices.spec", "--recursive=false")
    assert "Which weights to serve" in text
