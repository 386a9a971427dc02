"""Who chooses the replicas: the scale subresource, or the operator by the engines' load."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from octavo import engine_contract as contract
from tests.cluster.stage import Stage, wait_for

pytestmark = pytest.mark.cluster


def test_scale_subresource_sets_the_replicas_under_external(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.serve(commit, autoscaling={"mode": "External", "maxReplicas": 4})

    stage.kubectl("scale", "lsvc", "tiny", "--replicas=3")
    stage.make_ready(stage.wait_pods(commit, 3))

    wait_for(lambda: stage.service()["status"]["readyReplicas"] == 3, "three ready replicas in status")
    assert stage.condition("Ready")["status"] == "True"


class BusyEngine(ThreadingHTTPServer):
    """An engine's metrics, with as many requests as the test says."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), EngineMetrics)
        self.running = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()


class EngineMetrics(BaseHTTPRequestHandler):
    server: BusyEngine

    def do_GET(self) -> None:
        values = {
            contract.NUM_REQUESTS_RUNNING: self.server.running,
            contract.NUM_REQUESTS_WAITING: 0,
            contract.MAX_SEQUENCES: 10,
        }
        self.send_response(200)
        self.end_headers()
        self.wfile.write("".join(f"{name} {value}\n" for name, value in values.items()).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        pass


def test_service_under_slo_grows_with_its_load_and_shrinks_after(stage: Stage) -> None:
    commit = stage.add_commit("first")
    engine = BusyEngine()
    autoscaling = {"mode": "SLO", "maxReplicas": 3, "scaleDown": {"stabilizationWindowSeconds": 0}}
    stage.serve(commit, autoscaling=autoscaling, routing={"port": engine.server_port})

    engine.running = 20
    stage.make_ready(stage.wait_pods(commit, 3))
    status = stage.service()["status"]["autoscaling"]
    assert status["desiredReplicas"] == 3
    assert "20 running" in status["message"]
    assert stage.condition("Ready")["status"] == "True"

    engine.running = 0
    stage.wait_pods(commit, 1)
    assert {"Scaled"} <= {event["reason"] for event in stage.list("events")}
    engine.shutdown()
    engine.server_close()
    stage.kubectl(
        "patch", "lsvc", "tiny", "--type=merge", "-p", '{"spec": {"autoscaling": {"minReplicas": 2}}}'
    )
    stage.make_ready(stage.wait_pods(commit, 2))
    wait_for(
        lambda: stage.service()["status"]["autoscaling"]["reason"] == "MetricsMissing",
        "the blackout to be told",
    )
    assert len(stage.pods(commit)) == 2
