"""What the API server itself takes, refuses and explains, by the definition alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cluster.stage import Refused, Stage
from tests.octavo_operator.refused import REFUSED
from tests.octavo_operator.refused import Refused as RefusedCase

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.case)
def test_api_server_refuses(quiet_stage: Stage, case: RefusedCase) -> None:
    with pytest.raises(Refused, match=re.escape(case.said)):
        quiet_stage.apply(case.name, **case.spec)


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
