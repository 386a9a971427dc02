"""Names of clusters: they become parts of paths, cgroups and node names."""

import pytest

from tests.cluster.local.failure import ClusterError
from tests.cluster.local.paths import cluster_paths


@pytest.mark.parametrize("name", ["", "Octavo", "a/b", "../up", "1st", "x" * 41])
def test_cluster_paths_refuses_when_a_name_is_no_plain_word(name: str) -> None:
    with pytest.raises(ClusterError, match="use a lower-case letter"):
        cluster_paths(name)
