"""The command line: up, down, status, binaries, prepare, images."""

import argparse
import json
import signal
from collections.abc import Sequence
from types import FrameType

from tests.cluster.local.binaries import FULL_PROGRAMS, LIGHT_PROGRAMS, require_programs
from tests.cluster.local.cluster import Cluster, find_cluster, remove_abandoned, start_full, start_light
from tests.cluster.local.definitions import require_definitions
from tests.cluster.local.failure import ClusterError
from tests.cluster.local.packages import install_packages
from tests.cluster.local.paths import cluster_paths
from tests.cluster.local.progress import say, step
from tests.cluster.local.record import cluster_lock
from tests.cluster.local.removal import remove_cluster
from tests.cluster.local.status import read_status


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 1 on an expected failure, 130 when interrupted."""
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        arguments.run(arguments)
    except ClusterError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; what had been started was removed")
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.local", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: object, help_text: str, *, named: bool = True) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help_text, description=help_text)
        command.set_defaults(run=run)
        if named:
            command.add_argument("--name", default="octavo", help="the cluster (default: octavo)")
        return command

    add(
        "prepare",
        _prepare,
        "install Debian packages, build all programs, fetch definitions",
        named=False,
    )
    programs = add("binaries", _binaries, "build the programs that are not in the cache", named=False)
    programs.add_argument("--light", action="store_true", help="only what a light cluster needs")
    up = add("up", _up, "start a cluster, or find it running; prints `export KUBECONFIG=…`")
    up.add_argument("--light", action="store_true", help="no node: etcd, API server, controller manager")
    add("down", _down, "remove a cluster, from whatever state it is in; its logs stay")
    status = add("status", _status, "what runs, and where")
    status.add_argument("--output", choices=("text", "json"), default="text")
    add("images", _images, "build the engine's and the operator's image and push them into the cluster")
    return parser


def _prepare(arguments: argparse.Namespace) -> None:
    install_packages()
    require_programs(FULL_PROGRAMS)
    require_definitions()


def _binaries(arguments: argparse.Namespace) -> None:
    programs = LIGHT_PROGRAMS if arguments.light else FULL_PROGRAMS
    require_definitions()
    for name, path in require_programs(programs).items():
        print(f"{name}\t{path}")


def _up(arguments: argparse.Namespace) -> None:
    remove_abandoned()
    start = start_light if arguments.light else start_full
    cluster = start(arguments.name)
    say(f"The {cluster.record.mode} cluster {cluster.name!r} is up. Logs: {cluster.log_dir}")
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    print(f"export PATH={cluster.bin_dir}:$PATH")


def _down(arguments: argparse.Namespace) -> None:
    paths = cluster_paths(arguments.name)
    remove_abandoned()
    with cluster_lock(paths), step(f"removing cluster {arguments.name!r}"):
        remove_cluster(paths)


def _status(arguments: argparse.Namespace) -> None:
    status = read_status(cluster_paths(arguments.name))
    print(json.dumps(status, indent=2) if arguments.output == "json" else _as_text(status))


def _as_text(status: dict[str, object]) -> str:
    return "\n".join(f"{key:12}{_line(value)}" for key, value in status.items())


def _line(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(sorted(set(value.values()))) or "none"
    if isinstance(value, list):
        return " ".join(value) or "none"
    return "-" if value is None else str(value)


def _images(arguments: argparse.Namespace) -> None:
    from tests.cluster.images import push_images  # builds what changed first; no other command needs it

    for name, reference in push_images(_running(arguments.name)).items():
        print(f"{name}\t{reference}")


def _running(name: str) -> Cluster:
    cluster = find_cluster(name)
    if cluster is None:
        raise ClusterError(f"cluster {name!r} is not up: `python -m tests.cluster.local up --name {name}`")
    return cluster


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """SIGTERM and a closed terminal end a run the way Ctrl-C does: by way of its clean-up."""
    raise KeyboardInterrupt
