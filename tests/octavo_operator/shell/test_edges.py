"""The shell's edges: hub, cache, environment, logs, Events."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import InvalidSpec
from octavo_operator.decide.events import EventDraft
from octavo_operator.decide.target import Refusal
from octavo_operator.shell.cache import Cache
from octavo_operator.shell.kinds import DEPLOYMENTS, INFERENCE_SERVICES, PODS
from octavo_operator.shell.kube import build_event, read_refusal
from octavo_operator.shell.logs import JsonFormatter
from octavo_operator.shell.settings import read_settings
from tests.octavo_operator.builders import NOW, OWNER
from tests.octavo_operator.shell.asking import Asker
from tests.support.model_hub import HubStore, ModelHub, Weather

REPO = "organization/model"
KEY = (OWNER.namespace, OWNER.name)
INTERVAL = "OCTAVO_UPSTREAM_INTERVAL_SECONDS"


@pytest.fixture
def hub_store(tmp_path: Path) -> Iterator[tuple[HubStore, Asker]]:
    store = HubStore(tmp_path)
    with ModelHub(store) as server:
        yield store, Asker(server.endpoint)


def test_hub_resolves_branch_tag_and_commit_to_one_commit(hub_store: tuple[HubStore, Asker]) -> None:
    store, hub = hub_store
    first = store.add_commit(REPO, {"config.json": b'{"a": 1}'}, message="first")
    store.tag(REPO, "v1", first)
    second = store.add_commit(REPO, {"config.json": b'{"a": 2}'}, message="second")

    words = ("main", "v1", first)
    assert [hub.resolve(REPO, word) for word in words] == [second, first, first]
    assert hub.read_config(REPO, first) == '{"a": 1}'


def test_hub_refuses_with_its_reason(hub_store: tuple[HubStore, Asker]) -> None:
    store, hub = hub_store
    commit = store.add_commit(REPO, {"config.json": b"[]"}, message="first")
    store.add_commit("organization/empty", {"README.md": b""}, message="first")

    def reason(answer: object) -> str:
        assert isinstance(answer, Refusal)
        assert answer.message
        return answer.reason

    assert reason(hub.resolve("organization/absent", "main")) == "RepositoryNotFound"
    assert reason(hub.resolve(REPO, "v9")) == "RevisionNotFound"
    assert reason(hub.read_config("organization/empty", "main")) == "FileMissing"
    assert reason(hub.read_config(REPO, commit)) == "InvalidConfig"
    store.gate(REPO)
    assert reason(hub.read_config(REPO, commit)) == "AccessDenied"


def test_hub_outage_is_a_refusal_that_may_pass(hub_store: tuple[HubStore, Asker]) -> None:
    store, hub = hub_store
    store.add_commit(REPO, {"config.json": b"{}"}, message="first")
    store.set_weather(Weather(outage=True))
    answers = [
        hub.resolve(REPO, "main"),
        Asker("http://127.0.0.1:1").resolve(REPO, "main"),
    ]
    for answer in answers:
        assert isinstance(answer, Refusal)
        assert (answer.reason, answer.lasting) == ("HubUnavailable", False)


def body(name: str, *, version: int, uid: str = "u", owner: str = OWNER.uid) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": OWNER.namespace,
            "name": name,
            "uid": uid,
            "resourceVersion": str(version),
            "labels": {"octavo.dev/service": OWNER.name},
            "ownerReferences": [{"uid": owner, "controller": True}],
            "managedFields": [{}],
        }
    }


def test_cache_keeps_the_newest_version() -> None:
    cache = Cache()
    for version in (5, 9, 7):
        cache.put(DEPLOYMENTS, body("chat-a", version=version))
    known = cache.find(DEPLOYMENTS, OWNER.namespace, "chat-a")
    assert known is not None
    assert known["metadata"]["resourceVersion"] == "9"
    assert "managedFields" not in known["metadata"]


def test_cache_drops_only_the_object_that_was_deleted() -> None:
    cache = Cache()
    cache.put(DEPLOYMENTS, body("chat-a", version=9, uid="new"))
    cache.drop(DEPLOYMENTS, body("chat-a", version=8, uid="old"))
    assert cache.find(DEPLOYMENTS, OWNER.namespace, "chat-a") is not None
    cache.drop(DEPLOYMENTS, body("chat-a", version=10, uid="new"))
    assert cache.size() == 0


def test_cache_tells_children_of_an_earlier_object_of_the_same_name_apart() -> None:
    cache = Cache()
    cache.put(DEPLOYMENTS, body("chat-a", version=1, owner="earlier"))
    cache.put(DEPLOYMENTS, body("chat-b", version=1))
    cache.put(PODS, body("chat-b-0", version=1, owner="replicaset"))
    cache.put(INFERENCE_SERVICES, body(OWNER.name, version=1, uid=OWNER.uid))
    children = cache.children(KEY, OWNER.uid)
    assert [child["metadata"]["name"] for child in children.deployments] == ["chat-b"]
    assert [child["metadata"]["name"] for child in children.pods] == ["chat-b-0"]
    assert cache.service(KEY) is not None


def test_settings_are_read_from_the_environment() -> None:
    settings = read_settings({"OCTAVO_ENGINE_IMAGE": "engine:1", "OCTAVO_HUB_ENDPOINT": "http://hub.test/"})
    assert settings.hub_endpoint == "http://hub.test"
    assert settings.watch_namespace == ""
    assert settings.log_format == "json"
    assert settings.upstream_interval_seconds == 300
    never = read_settings({"OCTAVO_ENGINE_IMAGE": "engine:1", INTERVAL: "0"})
    assert never.upstream_interval_seconds == 0


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "OCTAVO_ENGINE_IMAGE"),
        ({"OCTAVO_ENGINE_IMAGE": "engine:1", "OCTAVO_LOG_FORMAT": "xml"}, "OCTAVO_LOG_FORMAT.*xml"),
        ({"OCTAVO_ENGINE_IMAGE": "engine:1", INTERVAL: "5m"}, f"{INTERVAL}.*5m"),
        ({"OCTAVO_ENGINE_IMAGE": "engine:1", INTERVAL: "-1"}, f"{INTERVAL}.*-1"),
        ({"OCTAVO_ENGINE_IMAGE": "engine:1", INTERVAL: "nan"}, f"{INTERVAL}.*nan"),
    ],
)
def test_settings_refuse_with_the_variables_name(environment: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        read_settings(environment)


def test_log_lines_are_json_with_the_object_they_are_about() -> None:
    record = logging.makeLogRecord({"name": "octavo", "levelname": "INFO", "msg": "done", "service": "chat"})
    line = json.loads(JsonFormatter().format(record))
    assert (line["level"], line["message"], line["service"]) == ("info", "done", "chat")


@pytest.mark.parametrize(
    ("data", "text", "in_vain"),
    [
        (
            b'{"message": "no", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}',
            "no (HTTP 403)",
            True,
        ),
        (b'{"message": "quota", "details": {}}', "quota (HTTP 403)", False),
        (b"<html>", "<html> (HTTP 403)", False),
        (b"[]", "[] (HTTP 403)", False),
    ],
)
def test_refusal_is_read_from_the_answer(data: bytes, text: str, in_vain: bool) -> None:
    refused = read_refusal(403, data)
    assert (str(refused), refused.in_vain) == (text, in_vain)


def test_event_fits_what_the_api_server_takes() -> None:
    made = build_event(OWNER, EventDraft(type="Warning", reason="FileMissing", message="x" * 5000), now=NOW)
    assert len(made["message"]) == 1024
    assert made["involvedObject"]["uid"] == OWNER.uid
    assert made["eventTime"] == "2026-01-02T03:04:05.000000Z"
