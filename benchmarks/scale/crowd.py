"""The crowd: many services, foreign pods beside them, and a kubelet that makes engine pods ready.

Everything goes through the API server with the user's own rights; there is no node, so `ready` is written.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from tests.cluster.stage import PLURAL, REPO, Stage

Body = dict[str, Any]
WRITERS: Final = 8
LOOK_SECONDS: Final = 0.5
SPEC: Final[Body] = {
    "model": {"uri": f"hf://{REPO}", "revision": "v1"},
    "resources": {"cpu": "500m"},
    "rollout": {"gate": {"load": False}},
}


def service_name(index: int) -> str:
    return f"s{index:04d}"


def apply_service(stage: Stage, index: int, **changes: object) -> Body:
    body = {
        "apiVersion": "octavo.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": service_name(index)},
        "spec": {**SPEC, **changes},
    }
    answer = stage.client.patch(
        stage.path(PLURAL, service_name(index)),
        params={"fieldManager": "gitops", "force": "true"},
        headers={"Content-Type": "application/apply-patch+yaml"},
        content=json.dumps(body),
    )
    stored: Body = answer.raise_for_status().json()
    return stored


def make_foreign_pod(stage: Stage, index: int) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"foreign-{index:05d}", "labels": {"app": "foreign"}},
        "spec": {"containers": [{"name": "main", "image": "example.test/foreign:1"}]},
    }
    stage.client.post(stage.path("pods"), json=body).raise_for_status()


def many(work: Iterable[Any]) -> Iterator[Any]:
    """Run calls side by side; the first error is raised."""
    with ThreadPoolExecutor(WRITERS) as pool:
        yield from pool.map(lambda call: call(), work)


@dataclass
class Kubelet:
    """Makes every engine pod ready as soon as it is seen."""

    stage: Stage
    _end: threading.Event = field(default_factory=threading.Event)
    _done: set[str] = field(default_factory=set)

    def __enter__(self) -> Kubelet:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(LOOK_SECONDS):
            pods = [pod for pod in pending_pods(self.stage) if pod["metadata"]["uid"] not in self._done]
            self._done.update(pod["metadata"]["uid"] for pod in pods)
            self.stage.make_ready(pods)


def pending_pods(stage: Stage) -> list[Body]:
    """Engine pods that are not running yet; all others would be megabytes at every look."""
    selector = "app.kubernetes.io/managed-by=octavo"
    pods = look(stage, "pods", labelSelector=selector, fieldSelector="status.phase=Pending")
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def look(stage: Stage, plural: str, **query: str) -> list[Body]:
    """As the API server remembers it, perhaps a moment old: looking is to cost it little."""
    answer = stage.client.get(stage.path(plural), params={"resourceVersion": "0", **query})
    bodies: list[Body] = answer.raise_for_status().json()["items"]
    return bodies
