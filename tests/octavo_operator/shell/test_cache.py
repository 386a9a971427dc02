"""The cache: what it gives back, and what a service costs in it.

`one_service.jsonl` is a service with its children as a real API server stored them, with its managed fields.
"""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any, Final

from octavo_operator.decide.world import parse_world
from octavo_operator.shell.cache import Cache
from octavo_operator.shell.kinds import DEPLOYMENTS, INFERENCE_SERVICES, KINDS_BY_NAME, PODS, Kind

BODIES: Final = (Path(__file__).parent / "one_service.jsonl").read_text().splitlines()
NAME: Final = "s0007"
KIB: Final = 1024
MOST_KIB_PER_SERVICE: Final = 24
"""A thousand services must leave most of the operator's 300 MiB to the passes."""


def fill(cache: Cache, name: str) -> None:
    """The service under another name, as a listing brings it."""
    for line in BODIES:
        body = json.loads(line.replace(NAME, name))
        cache.put(kind_of(body), body)


def kind_of(body: dict[str, Any]) -> Kind:
    return {INFERENCE_SERVICES.name: INFERENCE_SERVICES, **KINDS_BY_NAME}[body["kind"]]


def load(kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in map(json.loads, BODIES) if one["kind"] == kind.name)
    return found


def test_body_comes_back_as_it_was_but_for_who_manages_its_fields() -> None:
    cache, body = Cache(), load(PODS)
    body["metadata"]["annotations"] = {"said": "½ × \ud800"}
    cache.put(PODS, body)
    del body["metadata"]["managedFields"]
    assert cache.find(PODS, "scale", body["metadata"]["name"]) == body


def test_change_to_a_body_that_was_asked_for_changes_nothing_in_the_cache() -> None:
    cache, body = Cache(), load(DEPLOYMENTS)
    cache.put(DEPLOYMENTS, body)
    place = (body["metadata"]["namespace"], body["metadata"]["name"])
    found: Any = cache.find(DEPLOYMENTS, *place)
    found["spec"]["replicas"] = 99
    again = cache.find(DEPLOYMENTS, *place)
    assert again is not None
    assert again["spec"]["replicas"] != 99


def test_pass_sees_a_whole_service() -> None:
    cache = Cache()
    fill(cache, NAME)
    body = cache.service(("scale", NAME))
    assert body is not None
    world = parse_world(body, cache.children(("scale", NAME), body["metadata"]["uid"]))
    assert [stored.number for stored in world.revisions.values()] == [1]
    assert [pod.ready for pod in world.pods] == [True]
    assert world.selected in world.deployments
    assert [placed.name for placed in world.surroundings if placed.kind == "Service"] == [NAME]


def test_thousand_services_do_not_fill_the_operators_memory() -> None:
    services = 50
    cache = Cache()
    fill(cache, "first")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(services):
            fill(cache, f"n{number:04d}")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cache.size() == (services + 1) * len(BODIES)
    assert (after - before) / services < MOST_KIB_PER_SERVICE * KIB
