"""`octavo-engine serve` in a process of its own, and what can be seen of it from outside."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.octavo_engine.server.running_server import MODEL, eventually

COMMAND = (sys.executable, "-c", "import sys; from octavo_engine.cli import main; sys.exit(main())")


@contextlib.contextmanager
def serve_process(
    model_dir: Path, *flags: str, **environment: str
) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """Serve, and yield when ready. Later flags win, so that `flags` may change the ones given here."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["serve", "--model", str(model_dir), "--port", str(port), "--served-model-name", MODEL]
    memory = ["--memory-limit", "2Gi", "--planned-kv-blocks", "64", "--dtype", "float32"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    with subprocess.Popen(
        [*COMMAND, *arguments, *memory, *flags], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
                eventually(lambda: is_ready(client), within=60)
                yield process, client
        finally:
            process.kill()


def is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/ready").status_code == 200
    except httpx.TransportError:
        return False


def processor_seconds(pid: int) -> float:
    """Taken since its start, in user and system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def anonymous_bytes(pid: int) -> int:
    """Memory of its own, mapped files left out."""
    (line,) = [
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("RssAnon:")
    ]
    return int(line.split()[1]) * 1024


def num_open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
