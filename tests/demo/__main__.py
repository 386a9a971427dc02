"""`python -m tests.demo up|down`: what `make demo` and `make demo-down` run."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import partial

from tests.cluster.local.failure import ClusterError
from tests.cluster.local.paths import cache_dir, clusters_dir
from tests.demo import diagnosis, scenario, targets, teardown
from tests.demo.chat import RequestFailed
from tests.demo.hub import HubFailed
from tests.demo.kubectl import KubectlRefused
from tests.demo.service import ServiceStalled
from tests.demo.steps import Steps
from tests.install.helm import HelmRefused

EXPECTED_FAILURES = (
    subprocess.SubprocessError,
    OSError,
    ClusterError,
    HubFailed,
    ServiceStalled,
    RuntimeError,
    KubectlRefused,
    HelmRefused,
    RequestFailed,
    targets.MissingSetting,
)
LOCAL_STEPS = 6
EXISTING_STEPS = 1
LOCAL_PLAN = """\
Octavo's demo. On this machine it will
  - install Debian packages that are missing (containerd, runc, buildah, a registry, ...)
  - build Kubernetes, etcd and Helm from pinned Go modules into {cache} (about 12 minutes, once)
  - convert a sample model, SmolLM2-135M-Instruct, into the same cache (about a minute, once)
  - start a one-node Kubernetes cluster in a network namespace of its own, with no route out
  - build the engine's and the operator's images, and install Octavo on that cluster with Helm
State and logs lie under {state}. `make demo-down` removes everything but the cache."""
EXISTING_PLAN = """\
Octavo's demo. On the cluster of your current kubeconfig it will
  - create the namespace octavo-system and install the InferenceService definition and the operator with Helm
  - apply manifests/samples/smollm2.yaml, whose model comes from {hub}
`make demo-down CLUSTER=existing` removes what it made."""


def main() -> int:
    chosen = parse_arguments()
    try:
        return COMMANDS[chosen.command, chosen.cluster]()
    except KeyboardInterrupt:
        print(
            "\nInterrupted. Run it again to go on; `make demo-down` removes what it made.",
            file=sys.stderr,
        )
        return 130


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument("command", choices=("up", "down"))
    parser.add_argument("--cluster", choices=("local", "existing"), default="local")
    return parser.parse_args()


def up_local() -> int:
    print(LOCAL_PLAN.format(cache=cache_dir(), state=clusters_dir()))
    return narrated(Steps(total=LOCAL_STEPS + scenario.NUM_STEPS), targets.start_local, "make demo-down")


def up_existing() -> int:
    print(EXISTING_PLAN.format(hub=os.environ.get("HUB_ENDPOINT") or "the public Hugging Face hub"))

    def start(steps: Steps) -> targets.Target:
        target = targets.use_existing(steps, os.environ)
        teardown.remember_existing(target.kubectl)
        return target

    steps = Steps(total=EXISTING_STEPS + scenario.NUM_STEPS)
    return narrated(steps, start, "make demo-down CLUSTER=existing")


def narrated(steps: Steps, start: Callable[[Steps], targets.Target], down: str) -> int:
    """Run every step; on a failure say which, why, and everything that helps to see further."""
    target: targets.Target | None = None
    try:
        target = start(steps)
        service = scenario.run(target, steps)
    except Exception as failure:
        explain(failure, steps, target)
        return 1
    print(f"\nTimes\n{steps.summary()}\n\n{scenario.farewell(service, down)}")
    return 0


def explain(failure: BaseException, steps: Steps, target: targets.Target | None) -> None:
    say = partial(print, file=sys.stderr, flush=True)
    say(f"\nFAILED in: {steps.running}\n{type(failure).__name__}: {failure}\n")
    if target is not None:
        for line in diagnosis.describe(target.kubectl):
            say(line)
    folders = target.log_folders if target is not None else targets.local_log_folders()
    say("--- Logs", *diagnosis.name_logs(folders), sep="\n")
    if not isinstance(failure, EXPECTED_FAILURES):
        say("--- A mistake of the demo itself:", *traceback.format_exception(failure), sep="\n")


def down_local() -> int:
    teardown.remove_local(Steps(total=1))
    return 0


def down_existing() -> int:
    teardown.remove_from_existing(Steps(total=1))
    return 0


COMMANDS = {
    ("up", "local"): up_local,
    ("up", "existing"): up_existing,
    ("down", "local"): down_local,
    ("down", "existing"): down_existing,
}

if __name__ == "__main__":
    sys.exit(main())
