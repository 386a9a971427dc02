"""The cluster fixtures, for every test below this folder."""

from tests.cluster.local.fixtures import full_cluster, light_cluster
from tests.cluster.stage_fixtures import (
    defined_cluster,
    gateway_definitions,
    make_stage,
    quiet_stage,
    stage,
)

__all__ = [
    "defined_cluster",
    "full_cluster",
    "gateway_definitions",
    "light_cluster",
    "make_stage",
    "quiet_stage",
    "stage",
]
