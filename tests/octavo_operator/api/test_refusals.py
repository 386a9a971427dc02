"""Objects that the API server refuses are refused by the typed values too: for `octavo render`, and for an
operator whose cluster still has an older definition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from octavo.errors import InvalidSpec
from octavo_operator.api.crd import build_schema
from octavo_operator.decide.pinning import refuse_words
from octavo_operator.decide.world import Children, parse_world
from tests.octavo_operator.refused import REFUSED, URI, Refused


def body_of(case: Refused) -> dict[str, Any]:
    metadata = {"namespace": "prod", "name": case.name, "uid": "u", "generation": 1}
    return {"metadata": metadata, "spec": {"model": {"uri": URI}, **case.spec}}


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.case)
def test_typed_values_refuse_what_the_api_server_refuses(case: Refused) -> None:
    try:
        refusal = refuse_words(parse_world(body_of(case), Children()).spec.model, None)
    except InvalidSpec as error:
        assert case.said in str(error)
    else:
        assert refusal is not None
        assert case.said in refusal.message


def rules(node: dict[str, Any]) -> Iterator[dict[str, str]]:
    yield from node.get("x-kubernetes-validations", ())
    for child in (*node.get("properties", {}).values(), *([node["items"]] if "items" in node else [])):
        yield from rules(child)


def test_every_rule_of_the_definition_has_an_object_that_breaks_it() -> None:
    """But for the one about an edit, which no single object can break."""
    missing = [
        rule["message"]
        for rule in rules(build_schema())
        if "oldSelf" not in rule["rule"] and not any(case.said in rule["message"] for case in REFUSED)
    ]
    assert missing == []
