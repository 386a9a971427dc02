"""`octavo diff -f FILE`: what applying a file would change, and what that would do to the pods.

The API server itself says what the object would be (a dry run under the field manager that applied it last),
so defaults, rules and other managers' fields are all in; the operator's own rules say what follows from it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from octavo.errors import InvalidSpec
from octavo_operator.cli.cluster import (
    FIELD_MANAGER,
    ClusterAccess,
    NotFound,
    add_cluster_options,
    connect,
)
from octavo_operator.cli.exit_statuses import DIFFERS, OK
from octavo_operator.cli.program import report_errors
from octavo_operator.cli.revisions import HistoryLine, history_lines
from octavo_operator.cli.service_file import add_file_option, read_service_file
from octavo_operator.decide.edits import changed_paths, merge_patch
from octavo_operator.decide.intent import build_intent, hash_intent
from octavo_operator.decide.ownership import last_applier
from octavo_operator.decide.pinning import is_tracked
from octavo_operator.decide.world import parse_spec

DESCRIPTION = """\
What applying FILE would change in the cluster's object, and what becomes of its pods.
Exit status: 0 nothing would change, 1 something would, 2 bad input or refused by the API server, 4 no answer
of the cluster, 5 no such namespace."""
ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One field of spec, before and after."""

    path: str
    before: object
    after: object


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="octavo diff", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_file_option(parser)
    parser.add_argument(
        "--field-manager", metavar="NAME", help="whose apply it would be (default: who applied it last)"
    )
    parser.add_argument("--output", choices=("text", "json"), default="text")
    add_cluster_options(parser)
    return parser


@report_errors("diff")
def main(argv: Sequence[str]) -> int:
    options = build_parser().parse_args(argv)
    wanted = read_service_file(options.file)
    options.namespace = options.namespace or wanted["metadata"].get("namespace")
    access = connect(options)
    before, after = compare(access, wanted, options.field_manager)
    changes = list(changes_between(before.get("spec", {}), after["spec"]))
    revisions = history_lines(before, access.list_revisions(wanted["metadata"]["name"])) if before else []
    effect = effect_on_pods(before, after, revisions)
    if options.output == "json":
        document = {"changes": [asdict(change) for change in changes], "pods": effect}
        print(json.dumps(document, indent=2))
    else:
        print("\n".join([*map(line_of, changes), effect]) if changes else "no change")
    return DIFFERS if changes else OK


def compare(
    access: ClusterAccess, wanted: Mapping[str, Any], manager: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The object as it is (empty if there is none) and as it would be."""
    name = wanted["metadata"]["name"]
    try:
        before = access.read_service(name)
    except NotFound:
        before = {}
    chosen = manager or last_applier(before) or FIELD_MANAGER
    body = {**wanted, "metadata": {**wanted["metadata"], "namespace": access.namespace}}
    return before, access.try_apply(name, body, field_manager=chosen)


def changes_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for path in changed_paths(merge_patch(before, after)):
        yield Change(path=path, before=value_at(before, path), after=value_at(after, path))


def value_at(spec: Mapping[str, Any], path: str) -> object:
    node: object = spec
    for part in path.split(".")[1:]:
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def line_of(change: Change) -> str:
    """
    >>> line_of(Change(path="spec.replicas", before=1, after=2))
    'spec.replicas: 1 → 2'
    """
    words = (ABSENT if value is None else json.dumps(value) for value in (change.before, change.after))
    return f"{change.path}: {' → '.join(words)}"


def effect_on_pods(
    before: Mapping[str, Any], after: Mapping[str, Any], revisions: Sequence[HistoryLine]
) -> str:
    """
    | the words that make a revision | then                                                  |
    |--------------------------------|-------------------------------------------------------|
    | no object yet                  | its first pods are made                               |
    | as before                      | no pod is restarted                                   |
    | of a followed branch           | a revision of the commit where the branch is          |
    | of a revision that is kept     | back to it: its commit and its pods' template         |
    | new                            | a new revision is resolved, planned and rolled out    |
    """
    wanted = read_words(after)
    if not before:
        return f"pods: the first ones are made, of {wanted}"
    if same_words(before, wanted):
        return "pods: none is restarted"
    kept = next((line for line in revisions if line.hash == wanted.revision), None)
    if kept is None or wanted.followed:
        return f"pods: exchanged for those of a new one, {wanted}"
    good = f"proven {kept.proven_at}" if kept.proven_at else "never proven"
    place = f"revision {kept.number} ({kept.hash})"
    return f"pods: exchanged for those of {place}, commit {kept.commit}, {good}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What makes a revision; of a followed branch its commit does too, which words do not hold."""

    revision: str
    followed: str = ""
    """The branch."""

    def __str__(self) -> str:
        return f"the revision that follows {self.followed}" if self.followed else f"revision {self.revision}"


def read_words(body: Mapping[str, Any]) -> Words:
    spec = parse_spec(body)
    followed = spec.model.revision if is_tracked(spec.model) else ""
    return Words(revision=hash_intent(build_intent(spec)), followed=followed)


def same_words(before: Mapping[str, Any], wanted: Words) -> bool:
    """False if those of before cannot be read: perhaps that is what FILE mends."""
    try:
        return read_words(before) == wanted
    except InvalidSpec:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
