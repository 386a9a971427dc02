"""kubectl on one cluster: its output, its JSON, and a port-forward that lasts as long as a `with`."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORWARDED = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


class KubectlRefused(Exception):
    """kubectl exited non-zero; the text is what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """One kubectl program and one kubeconfig; None is the user's own."""

    program: Path
    kubeconfig: Path | None

    @property
    def environment(self) -> dict[str, str]:
        chosen = {"KUBECONFIG": str(self.kubeconfig)} if self.kubeconfig else {}
        return {**os.environ, **chosen}

    def run(self, *arguments: str, stdin: str | None = None, timeout: float = 120) -> str:
        """What kubectl printed; its own words are raised when it fails."""
        done = self.attempt(*arguments, stdin=stdin, timeout=timeout)
        if done.returncode:
            raise KubectlRefused(
                f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}"
            )
        return done.stdout

    def attempt(
        self, *arguments: str, stdin: str | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.program), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=timeout,
            check=False,
        )

    def read(self, *arguments: str) -> dict[str, Any]:
        """`kubectl get ... -o json`, parsed."""
        parsed: dict[str, Any] = json.loads(self.run("get", *arguments, "-o", "json"))
        return parsed

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.read(*arguments)["items"]
        return found

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.program), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
        )

    @contextmanager
    def port_forward(self, *target: str, port: int) -> Iterator[int]:
        """Forward a free loopback port to `port` of the target; gives the loopback port."""
        process = self.start("port-forward", "--address", "127.0.0.1", *target, f":{port}")
        try:
            yield forwarded_port(process)
        finally:
            process.terminate()
            process.wait()


def forwarded_port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if found := FORWARDED.search(line):
            return int(found[1])
    raise KubectlRefused(f"kubectl port-forward: {''.join(said).strip()}")
