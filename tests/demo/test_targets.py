"""What the demo asks of a user who brings a cluster."""

from __future__ import annotations

import io

import pytest

from tests.demo.steps import Steps
from tests.demo.targets import MissingSetting, use_existing


def test_existing_cluster_without_images_is_refused_with_the_way_out() -> None:
    with pytest.raises(MissingSetting, match=r"ENGINE_IMAGE and OPERATOR_IMAGE: not set.*push them"):
        use_existing(Steps(total=1, out=io.StringIO()), {})


def test_existing_cluster_without_one_image_names_that_one() -> None:
    with pytest.raises(MissingSetting, match=r"^OPERATOR_IMAGE: not set"):
        use_existing(Steps(total=1, out=io.StringIO()), {"ENGINE_IMAGE": "registry.example/engine:1"})
