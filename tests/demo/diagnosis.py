"""What to look at when the demo fails: the resource's conditions, its pods, events and the logs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.demo.kubectl import Kubectl
from tests.install.paths import NAMESPACE

EVERYWHERE = "--all-namespaces"
QUESTIONS: tuple[tuple[str, Sequence[str]], ...] = (
    ("Octavo's resources", ("get", "inferenceservices.octavo.dev", EVERYWHERE, "-o", "wide")),
    ("Their conditions", ("describe", "inferenceservices.octavo.dev", EVERYWHERE)),
    ("Pods", ("get", "pods", EVERYWHERE, "-o", "wide")),
    ("Engine pods", ("describe", "pods", EVERYWHERE, "--selector", "app.kubernetes.io/managed-by=octavo")),
    ("Operator pods", ("describe", "pods", "--namespace", NAMESPACE)),
    ("Recent events", ("get", "events", EVERYWHERE, "--sort-by=.lastTimestamp")),
    ("Operator log", ("logs", "--namespace", NAMESPACE, "deployment/octavo-operator", "--tail=40")),
)
LAST_LINES = 60


def describe(kubectl: Kubectl) -> Iterator[str]:
    """Each question with the end of its answer; one that cannot be asked says so."""
    for title, arguments in QUESTIONS:
        yield f"--- {title}: kubectl {' '.join(arguments)}"
        yield answer(kubectl, arguments)


def answer(kubectl: Kubectl, arguments: Sequence[str]) -> str:
    try:
        done = kubectl.attempt(*arguments, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as broken:
        return f"no answer: {broken}"
    lines = (done.stdout + done.stderr).strip().splitlines()
    return "\n".join(lines[-LAST_LINES:])


def name_logs(folders: Sequence[Path]) -> Iterator[str]:
    for folder in folders:
        logs = sorted(folder.glob("**/*.log")) if folder.exists() else []
        yield f"{folder}: {', '.join(log.name for log in logs) or 'no logs yet'}"
