"""`octavo render -f FILE`: every object that the operator would make for a service, before there is one.

The same code as in the operator, for a cluster that has nothing of it yet. The model's configuration comes
from the hub or, without a network, from a file. Owner references are left out: there is no owner yet.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from octavo.cli.exit_codes import DOES_NOT_FIT
from octavo.errors import InvalidSpec, OctavoError
from octavo.model_source import is_commit_of, parse_model_uri
from octavo_operator.api.spec import ModelSource
from octavo_operator.cli.cluster import ClusterUnavailable
from octavo_operator.cli.exit_statuses import OK
from octavo_operator.cli.hub_answers import ModelAtHub, hub_endpoint, look_up, look_up_files
from octavo_operator.cli.program import report_errors
from octavo_operator.cli.service_file import add_file_option, read_service_file, refuse_slips
from octavo_operator.decide.conditions import format_time
from octavo_operator.decide.next_state import decide_next_state
from octavo_operator.decide.pinning import is_on_hub, is_tracked, refuse_words
from octavo_operator.decide.revising import build_revision
from octavo_operator.decide.rollout.values import GateFacts
from octavo_operator.decide.scaling import ScalingDecision, decide_fixed_replicas
from octavo_operator.decide.sizing import plan_revision
from octavo_operator.decide.surroundings import Sharing, build_surroundings, wanted_kinds
from octavo_operator.decide.target import Refusal, Target
from octavo_operator.decide.world import Children, World, parse_world
from octavo_operator.desired.metadata import Manifest
from octavo_operator.desired.pins import Pin
from octavo_operator.shell.hub_manifest import Manifest as Files

DESCRIPTION: Final = """\
Every object that the operator would make for an InferenceService, as YAML.
Without --model-config the hub is asked (HF_ENDPOINT). With it the digest of the model's files is not known,
and pods are shown without the flag that names it.
Exit status: 0 rendered, 1 refused: it cannot be served so, 2 bad input, 4 no answer of the hub."""


NO_FILES: Final = Files(digest="", size_bytes=0)


class ServiceRefused(OctavoError):
    """The operator would make nothing of it; its own reason and way out."""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="octavo render", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_file_option(parser)
    parser.add_argument("-n", "--namespace", metavar="NS", help="default: the file's, else default")
    parser.add_argument(
        "--engine-image", metavar="IMAGE", default="", help="of the installation, where spec names none"
    )
    add_model_options(parser)
    parser.add_argument("--output", choices=("yaml", "json"), default="yaml")
    return parser


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """What `read_model` takes."""
    offline = parser.add_argument_group("without a hub")
    offline.add_argument("--model-config", metavar="FILE", type=Path, help="the model's config.json")
    offline.add_argument(
        "--commit", metavar="C", help="what the words stand for (default: the words, if pinned)"
    )


@report_errors("render")
def main(argv: Sequence[str]) -> int:
    options = build_parser().parse_args(argv)
    now = datetime.now(UTC)
    world = read_world(options)
    try:
        model = read_model(options, world.spec.model)
        files = read_files(options, world.spec.model, model.commit)
        manifests = render(world, model, options.engine_image, files=files, now=now)
    except ServiceRefused as refused:
        print(f"octavo render: {refused}", file=sys.stderr)
        return DOES_NOT_FIT
    if options.output == "json":
        print(json.dumps(manifests, indent=2))
    else:
        print(yaml.safe_dump_all(manifests, sort_keys=False, allow_unicode=True), end="")
    return OK


def read_world(options: argparse.Namespace) -> World:
    """The file's object, as if it had just been created."""
    body = read_service_file(options.file)
    refuse_slips(body)
    namespace = options.namespace or body["metadata"].get("namespace") or "default"
    metadata = {**body["metadata"], "namespace": namespace, "uid": "", "generation": 1}
    world = parse_world({**body, "metadata": metadata, "status": {}}, Children())
    return replace(world, served_kinds=wanted_kinds(world.spec.routing), hub_endpoint=hub_endpoint())


def read_model(options: argparse.Namespace, model: ModelSource) -> ModelAtHub:
    if options.model_config is None:
        if options.commit is not None:
            raise InvalidSpec("--commit: goes with --model-config; the hub is asked for the words otherwise")
        return ask_hub(model)
    pinned = model.revision if is_commit_of(parse_model_uri(model.uri), model.revision) else None
    commit = options.commit or pinned
    if commit is None or not is_commit_of(parse_model_uri(model.uri), commit):
        raise InvalidSpec(
            f"--commit: {model.revision!r} can move; give the commit that it stands for, got {commit!r}"
        )
    return ModelAtHub(commit=commit, config=read_config(options.model_config))


def read_files(options: argparse.Namespace, model: ModelSource, commit: str) -> Files:
    """Unknown without a hub; of a folder or an image the commit itself stands for them."""
    if not is_on_hub(model.uri):
        return Files(digest=commit, size_bytes=0)
    if options.model_config is not None:
        return NO_FILES
    answer = asyncio.run(look_up_files(hub_endpoint(), model.uri, commit))
    if isinstance(answer, Refusal):
        raise ClusterUnavailable(answer.message)
    return answer


def ask_hub(model: ModelSource) -> ModelAtHub:
    answer = asyncio.run(look_up(hub_endpoint(), model))
    if isinstance(answer, Refusal):
        raise ClusterUnavailable(answer.message)
    return answer


def read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidSpec(f"--model-config: {path} cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise InvalidSpec(f"--model-config: {path} holds no JSON object")
    return config


def render(
    world: World, model: ModelAtHub, engine_image: str, *, files: Files, now: datetime
) -> list[Manifest]:
    """What a first pass makes, and what is added once the revision serves.

    Raises ServiceRefused with the operator's own words.
    """
    source = world.spec.model
    pin = Pin(
        uri=source.uri,
        revision=source.revision,
        refresh_token=source.refresh_token,
        commit=model.commit,
        resolved_at=format_time(now),
        tracked=is_tracked(source),
        manifest_digest=files.digest,
        size_bytes=files.size_bytes,
    )
    plan = refuse_words(source, pin) or plan_revision(world.spec, model.config)
    if isinstance(plan, Refusal):
        raise ServiceRefused(f"{plan.reason}: {plan.message}")
    if not (world.spec.engine.image or engine_image):
        raise InvalidSpec("--engine-image: spec.engine.image is empty, so name the installation's image")
    revision = build_revision(world, pin, plan, engine_image=engine_image, hub_endpoint=hub_endpoint())
    target = Target(pin=pin, revision=revision)
    wanted = decide_next_state(world, target, first_replicas(world), now=now, gates=GateFacts())
    manifests = {(one["kind"], one["metadata"]["name"]): one for one in wanted.manifests}
    for manifest in build_surroundings(world, Sharing(weights={revision.hash: 100}, services=())):
        manifests.setdefault((manifest["kind"], manifest["metadata"]["name"]), manifest)
    return [without_owner(manifest) for manifest in manifests.values()]


def first_replicas(world: World) -> ScalingDecision:
    """Before an engine has said anything."""
    policy, fixed = world.spec.autoscaling, decide_fixed_replicas(world.spec)
    if fixed is not None or policy is None:
        assert fixed is not None, "without a policy the number is fixed"
        return fixed
    return ScalingDecision(
        replicas=policy.min_replicas, reason="Rendered", message="the fewest, to begin with"
    )


def without_owner(manifest: Manifest) -> Manifest:
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "ownerReferences"}
    return {**manifest, "metadata": metadata}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
