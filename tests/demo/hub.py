"""The model hub of the local cluster: started inside its network namespace, kept between runs."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.local import Cluster
from tests.demo import recorded_process
from tests.demo.inside import connect_inside

HUB_PORT = 8099
START_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHub:
    """A hub process whose files, log and process id lie in one folder."""

    cluster: Cluster
    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def log(self) -> Path:
        return self.folder / "hub.log"

    @property
    def endpoint(self) -> str:
        return f"http://{self.cluster.node_ip}:{HUB_PORT}"

    @property
    def _pid_file(self) -> Path:
        return self.folder / "hub.pid"

    def start(self) -> None:
        """Start the hub unless it runs and answers."""
        if recorded_process.recorded_pid(self._pid_file) is not None and self._answers():
            return
        recorded_process.stop(self._pid_file)
        self.folder.mkdir(parents=True, exist_ok=True)
        recorded_process.record(self._pid_file, self._launch())
        self._await_answer()

    def _launch(self) -> int:
        arguments = ("--store", str(self.store), "--host", self.cluster.node_ip, "--port", str(HUB_PORT))
        with self.log.open("a") as log:
            process = self.cluster.run_inside(
                [sys.executable, "-m", "tests.support.model_hub", "serve", *arguments], stdout=log, stderr=log
            )
        return process.pid

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if recorded_process.recorded_pid(self._pid_file) is None or time.monotonic() > deadline:
                raise RuntimeError(f"the model hub did not start; its log: {self.log}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            connect_inside(self.cluster.netns, (self.cluster.node_ip, HUB_PORT), 2).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        recorded_process.stop(self._pid_file)
