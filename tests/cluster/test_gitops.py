"""The GitOps contract under 100 random acts, on a real API server."""

from __future__ import annotations

import pytest

from tests.cluster.gitops_play import NAME, Play
from tests.cluster.stage import REPO, Stage, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ACTS = 25


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [11, 12, 13, 14])
def test_contract_holds_through_random_edits_reverts_restarts_and_kills(stage: Stage, seed: int) -> None:
    stage.store.tag(REPO, "v1", stage.add_commit("one"))
    stage.store.tag(REPO, "v2", stage.add_commit("two"))
    with Play(stage, seed) as play:
        play.git.edit()
        play.settle()
        done = []
        for _ in range(ACTS):
            done.append(play.act())
            body = play.settle()
            assert body["spec"]["model"]["revision"] == play.git.words["model"]["revision"], done
        play.check()


def test_words_are_resolved_anew_when_the_object_was_deleted(stage: Stage) -> None:
    """The promise of words that can move ends with the object; RevisionPinned says so."""
    first = stage.add_commit("one")
    stage.serve(first)
    second = stage.add_commit("two")
    stage.kubectl("delete", "lsvc", NAME, "--wait")
    wait_for(lambda: not stage.list("configmaps", "octavo.dev/service"), "the children to go")
    stage.apply()
    stage.wait_pods(second)
