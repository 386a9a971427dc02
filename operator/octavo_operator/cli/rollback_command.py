"""`octavo rollback NAME`: ask again for what an earlier revision asked for.

The stored words of that revision are written into spec with the user's own rights; the operator then finds
the revision by its hash and reuses its commit and its pods' template, as after a revert in Git. Where a
GitOps tool owns those fields it would undo the edit, so the edit is printed for Git instead.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from octavo_operator.cli.cluster import ClusterAccess, NotFound, add_cluster_options, connect
from octavo_operator.cli.exit_statuses import OK, OWNED_BY_GIT
from octavo_operator.cli.program import report_errors
from octavo_operator.cli.revisions import (
    HistoryLine,
    asked_revision,
    find_revision,
    history_lines,
    previous_good,
    read_revisions,
)
from octavo_operator.decide.edits import Patch, changed_paths, plan_return
from octavo_operator.decide.ownership import machine_owners

DESCRIPTION = """\
Go back to an earlier revision of an InferenceService: its words, and with them its commit, image and plan.
Without --to: to what serves if the revision asked for never did, else to the good one before it.
Exit status: 0 done (or nothing to do), 2 bad input, 3 a GitOps tool owns the fields: the edit to make in
Git is printed and nothing is written, 4 no answer of the cluster, 5 no such service or revision."""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="octavo rollback",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help="of the InferenceService")
    parser.add_argument("--to", metavar="REVISION", help="number or hash, as `octavo history` shows them")
    parser.add_argument("--dry-run", action="store_true", help="ask the API server, and store nothing")
    parser.add_argument("--force", action="store_true", help="write even what a GitOps tool owns")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    add_cluster_options(parser)
    return parser


@report_errors("rollback")
def main(argv: Sequence[str]) -> int:
    options = build_parser().parse_args(argv)
    access = connect(options)
    body = access.read_service(options.name)
    revisions = access.list_revisions(options.name)
    line = choose(body, history_lines(body, revisions), options.to)
    intent = next(one.intent for _, one in read_revisions(revisions) if one.hash == line.hash)
    patch = plan_return(body["spec"], intent, wanted=line.hash)
    return answer(options, access, body, line, patch)


def choose(body: Mapping[str, Any], lines: Sequence[HistoryLine], wanted: str | None) -> HistoryLine:
    if wanted is not None:
        found = find_revision(lines, wanted)
        if found is None:
            known = ", ".join(f"{line.number} ({line.hash})" for line in lines) or "none"
            raise NotFound(f"--to: {wanted!r} is no revision of it; there are {known}")
        return found
    found = previous_good(lines, asked_revision(body))
    if found is None:
        raise NotFound("there is no earlier revision that was ever good; see `octavo history`")
    return found


def answer(
    options: argparse.Namespace,
    access: ClusterAccess,
    body: Mapping[str, Any],
    line: HistoryLine,
    patch: Patch,
) -> int:
    owners = () if options.force else machine_owners(body, changed_paths(patch))
    if patch and not owners:
        access.edit_service(options.name, {"spec": patch}, dry_run=options.dry_run)
    print(json_text(line, patch, owners) if options.output == "json" else text(options, line, patch, owners))
    return OWNED_BY_GIT if owners else OK


def json_text(line: HistoryLine, patch: Patch, owners: Sequence[str]) -> str:
    document = {"revision": line.as_json(), "edit": {"spec": patch} if patch else {}, "ownedBy": list(owners)}
    return json.dumps(document, indent=2)


def text(options: argparse.Namespace, line: HistoryLine, patch: Patch, owners: Sequence[str]) -> str:
    what = f"revision {line.number} ({line.hash}): {line.words}, commit {line.commit}"
    if not patch:
        return f"{options.name} asks for {what} already"
    if owners:
        return (
            f"{', '.join(owners)} owns these fields and would undo the edit. Make it in Git (null takes a "
            f"field away), or add --force.\nIt asks for {what}\n\n{yaml_of(patch)}"
        )
    done = "would ask for" if options.dry_run else "asks for"
    return f"{options.name} now {done} {what}\n\n{yaml_of(patch)}"


def yaml_of(patch: Patch) -> str:
    return yaml.safe_dump({"spec": patch}, sort_keys=False, allow_unicode=True).rstrip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
