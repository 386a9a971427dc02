"""Progress in words: whole, honest about the slowest, and silent where nothing is known."""

from __future__ import annotations

import pytest

from octavo_operator.decide.conditions import Finding
from octavo_operator.decide.fetching import (
    FetchReading,
    describe_fetch,
    fetching_pods,
    parse_reading,
    tell_fetch,
)
from tests.octavo_operator.builders import make_container, make_pod

GIB = 2**30


def reading(done: float, total: float = 16.4) -> FetchReading:
    return FetchReading(bytes_done=int(done * GIB), bytes_total=int(total * GIB))


def test_slowest_pod_is_told() -> None:
    assert describe_fetch([reading(1.2)]) == "fetching 1.20 GiB of 16.40 GiB (7 %)"
    words = describe_fetch([reading(9), reading(1.2), reading(0, 0)])
    assert words == "fetching 1.20 GiB of 16.40 GiB (7 %) on the slowest of 2 pods"
    assert describe_fetch([]) == describe_fetch([reading(0, 0)]) == ""


def test_what_a_pod_waits_for_is_told_also_before_it_knows_how_much_there_is() -> None:
    waits = FetchReading(bytes_done=0, bytes_total=0, trouble="the hub answers 503")
    assert describe_fetch([waits]) == "the hub answers 503"
    assert (
        describe_fetch([reading(1.2), waits]) == "fetching 1.20 GiB of 16.40 GiB (7 %); the hub answers 503"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"bytes_done": "1", "bytes_total": 2}',
        '{"bytes_done": 3, "bytes_total": 2}',
        '{"bytes_done": -1, "bytes_total": 2}',
        '{"bytes_done": true, "bytes_total": 2}',
        '{"bytes_done": 1.5, "bytes_total": 2}',
        "[" * 100_000,
    ],
)
def test_nonsense_is_no_reading(text: str) -> None:
    assert parse_reading(text) is None


def test_reading_is_taken_as_the_fetch_container_writes_it() -> None:
    text = '{"bytes_done": 1, "bytes_total": 2, "files_done": 0, "files_total": 3, "file": "a"}'
    assert parse_reading(text) == FetchReading(bytes_done=1, bytes_total=2)
    text = '{"bytes_done": 0, "bytes_total": 2, "trouble": "' + "x" * 10_000 + '"}'
    read = parse_reading(text)
    assert read is not None
    assert read.trouble == "x" * 300


def test_only_pods_that_fetch_now_are_asked() -> None:
    fetching = make_container(name="fetch", running=True)
    done = make_container(name="fetch", exit_code=0)
    pods = [
        make_pod(name="a", containers=(fetching,)),
        make_pod(name="b", containers=(fetching,), address=""),
        make_pod(name="c", containers=(done, make_container(running=True))),
        make_pod(name="d", containers=(fetching,), ready=True),
    ]
    assert [pod.name for pod in fetching_pods(pods)] == ["a"]


def finding(kind: str, reason: str, message: str = "0 of 1 replicas") -> Finding:
    return Finding(type=kind, status="False", reason=reason, message=message)


def test_words_are_added_only_to_what_waits() -> None:
    waits = [finding("Ready", "RolloutProgressing"), finding("Reconciling", "RolloutProgressing")]
    told = tell_fetch(waits, "fetching")
    assert [one.message for one in told] == ["0 of 1 replicas; fetching"] * 2
    others = (
        finding("Available", "NoReadyReplica"),
        finding("Ready", "DigestMismatch"),
        finding("Stalled", "RolloutProgressing", ""),
    )
    assert tell_fetch(others, "fetching") == others
    assert tell_fetch(waits, "") == tuple(waits)
