"""Edits of a user's spec, as values: what going back to a revision or pinning its words would change.

The operator itself never writes a spec; these are for people, who apply them with their own rights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

from octavo.errors import InvalidSpec
from octavo_operator.decide.intent import TRACKED_COMMIT, build_intent, hash_intent
from octavo_operator.decide.world import parse_spec

Patch = dict[str, Any]
"""A JSON merge patch (RFC 7386): a null takes a field away."""
HASHED_SECTIONS: Final = ("model", "engine", "resources", "accelerator", "template")


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> Patch:
    """The least patch that makes `before` into `after`.

    >>> merge_patch({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 4}})
    {'b': {'d': None, 'c': 4}}
    """
    patch: Patch = {key: None for key in before if key not in after}
    for key, value in after.items():
        known = before.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            if inner := merge_patch(known, value):
                patch[key] = inner
        elif key not in before or known != value:
            patch[key] = deepcopy(value)
    return patch


def apply_patch(document: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """`document` with the patch applied.

    >>> apply_patch({"a": 1, "b": {"c": 2}}, {"a": None, "b": {"d": 3}})
    {'b': {'c': 2, 'd': 3}}
    """
    merged = deepcopy(dict(document))
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            known = merged.get(key)
            merged[key] = apply_patch(known if isinstance(known, Mapping) else {}, value)
        else:
            merged[key] = deepcopy(value)
    return merged


def changed_paths(patch: Mapping[str, Any], root: str = "spec") -> Iterator[str]:
    """Every field that a patch sets or takes away.

    >>> list(changed_paths({"model": {"revision": "v1"}, "accelerator": None}))
    ['spec.model.revision', 'spec.accelerator']
    """
    for key, value in patch.items():
        path = f"{root}.{key}"
        if isinstance(value, Mapping) and value:
            yield from changed_paths(value, path)
        else:
            yield path


def plan_return(spec: Mapping[str, Any], stored_intent: Mapping[str, Any], *, wanted: str) -> Patch:
    """The edit of `spec` after which it asks for the revision `wanted` again; empty if it does already.

    Words that followed a branch cannot be said again: the branch has moved. The commit that they stood for is
    pinned instead, which is a revision of its own with the same weights. A section that cannot be read is
    replaced as a whole: to get rid of it may be why somebody goes back.

    Raises InvalidSpec if no edit of the hashed fields leads there.
    """
    intent = deepcopy(dict(stored_intent))
    tracked = intent["model"].pop(TRACKED_COMMIT, None)
    if tracked is not None:
        intent["model"]["revision"] = tracked
        wanted = hash_intent(intent)
    unread = unreadable_sections(spec)
    read = {"model": intent["model"], **{name: one for name, one in spec.items() if name not in unread}}
    patch = merge_patch(build_intent(parse_spec({"spec": read})), intent)
    patch |= {name: merge_patch(spec[name], intent[name]) if name in intent else None for name in unread}
    reached = hash_intent(build_intent(parse_spec({"spec": apply_patch(spec, patch)})))
    if reached != wanted:
        raise InvalidSpec(
            f"revision {wanted}: its stored words ask for {reached} under this version of the resource; take "
            "the edit from Git instead"
        )
    return patch


def unreadable_sections(spec: Mapping[str, Any]) -> list[str]:
    """Of those that make a revision as a whole.

    >>> unreadable_sections({"model": {"uri": "hf://a/b"}, "template": {"spec": {"hostNetwork": True}}})
    ['template']
    """
    return [name for name in HASHED_SECTIONS if name in spec and not _is_readable(name, spec[name])]


def _is_readable(name: str, section: object) -> bool:
    try:
        parse_spec({"spec": {"model": {"uri": "hf://organization/model"}, name: section}})
    except InvalidSpec:
        return False
    return True


def plan_pin(spec: Mapping[str, Any], commit: str) -> Patch:
    """The edit that replaces words that can move by what they stand for; empty if they are pinned already."""
    pinned = {"revision": commit, "revisionPolicy": "RequirePinned"}
    model = spec.get("model", {})
    return (
        {"model": merge_patch({key: model[key] for key in pinned if key in model}, pinned)}
        if any(model.get(key) != value for key, value in pinned.items())
        else {}
    )
