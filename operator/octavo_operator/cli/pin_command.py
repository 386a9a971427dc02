"""`octavo pin`: the edit that replaces words that can move by what they stand for.

It prints; the edit belongs into Git. For a service it is what the operator resolved, for a URI of the hub
what that says now.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from octavo.errors import InvalidSpec
from octavo.model_source import parse_model_uri
from octavo_operator.cli.cluster import ClusterUnavailable, NotFound, add_cluster_options, connect
from octavo_operator.cli.exit_statuses import OK
from octavo_operator.cli.hub_answers import hub_endpoint, resolve_words
from octavo_operator.cli.program import report_errors
from octavo_operator.cli.service_words import condition_of
from octavo_operator.decide.conditions import MODEL_RESOLVED
from octavo_operator.decide.edits import plan_pin

DESCRIPTION = """\
Print the edit that pins a model: the commit (hf://) or the digest of the files (pvc://, oci://).
The same weights under pinned words are a new revision: they are rolled out once more, as any edit of words.
Exit status: 0 printed (also if it is pinned already), 2 bad input, 4 no answer, 5 no such service, or one
that is not resolved."""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="octavo pin", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "target", metavar="NAME|URI", help="an InferenceService, or hf://organization/name (HF_ENDPOINT)"
    )
    parser.add_argument("--revision", metavar="R", help="branch or tag of a URI (main)")
    parser.add_argument("--output", choices=("yaml", "json"), default="yaml")
    add_cluster_options(parser)
    return parser


@report_errors("pin")
def main(argv: Sequence[str]) -> int:
    options = build_parser().parse_args(argv)
    edit = pin_of_uri(options) if "://" in options.target else pin_of_service(options)
    if options.output == "json":
        print(json.dumps(edit, indent=2))
    else:
        print(
            yaml.safe_dump(edit, sort_keys=False).rstrip() if edit else f"{options.target} is pinned already"
        )
    return OK


def pin_of_service(options: argparse.Namespace) -> dict[str, Any]:
    if options.revision is not None:
        raise InvalidSpec("--revision: is of a URI; a service's words are in its spec")
    body = connect(options).read_service(options.target)
    patch = plan_pin(body["spec"], resolved_commit(body))
    return {"spec": patch} if patch else {}


def resolved_commit(body: Mapping[str, Any]) -> str:
    """Of the words that spec has now, not of those that it had before."""
    status, words = body.get("status", {}), body["spec"]["model"].get("revision", "main")
    model, resolved = status.get("model"), condition_of(status, MODEL_RESOLVED)
    is_latest = resolved.get("observedGeneration") == body["metadata"]["generation"]
    if not model or resolved.get("status") != "True" or not is_latest:
        raise NotFound(f"the words {words!r} are not resolved yet; see `octavo status`")
    commit: str = model["resolvedRevision"]
    return commit


def pin_of_uri(options: argparse.Namespace) -> dict[str, Any]:
    uri, revision = options.target, options.revision or "main"
    parse_model_uri(uri)
    if not uri.startswith("hf://"):
        raise InvalidSpec(
            f"{uri}: only the cluster can read it; name an InferenceService that has resolved it, or run "
            "`octavo-engine resolve` where the files lie"
        )
    answer = asyncio.run(resolve_words(hub_endpoint(), uri, revision))
    if not isinstance(answer, str):
        raise ClusterUnavailable(answer.message)
    return {"spec": {"model": {"uri": uri, **plan_pin({}, answer)["model"]}}}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
