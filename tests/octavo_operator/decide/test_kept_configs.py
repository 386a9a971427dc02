"""Configurations kept beside the ledger: read as they were, bounded, and never trusted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_operator.decide.kept_configs import (
    MAX_KEPT,
    MAX_PACKED_LENGTH,
    keep_config,
    parse_kept,
    recall_config,
)
from octavo_operator.decide.world import Children, parse_world
from octavo_operator.desired.pins import CONFIGS_KEY, MAX_PINS, build_pins
from tests.octavo_operator.builders import COMMIT, OWNER, URI, make_pin

CONFIG = {"model_type": "llama", "layer_types": ["full"] * 60, "rope_scaling": None, "eps": 1e-05}


def pin_at(number: int) -> str:
    return f"{number:040x}"


@given(st.dictionaries(st.text(max_size=9), st.lists(st.integers() | st.none() | st.booleans(), max_size=9)))
def test_configuration_is_read_as_it_was_kept(config: dict[str, object]) -> None:
    kept = keep_config({}, [make_pin()], commit=COMMIT, config=json.dumps(config))
    text = recall_config(kept, COMMIT)
    assert text is not None
    assert json.loads(text) == config


def test_latest_lines_are_kept_and_the_others_go() -> None:
    kept: dict[str, str] = {}
    pins = tuple(replace(make_pin(), revision=f"v{n}", commit=pin_at(n)) for n in range(2 * MAX_KEPT))
    for number in range(len(pins)):
        kept = keep_config(
            kept, pins[: number + 1], commit=pin_at(number), config=json.dumps({"number": number})
        )
    assert list(kept) == [pin_at(number) for number in range(MAX_KEPT, 2 * MAX_KEPT)]
    assert keep_config(kept, pins, commit=pin_at(0), config="") == kept


def test_ledger_stays_within_what_a_config_map_holds() -> None:
    assert MAX_KEPT * MAX_PACKED_LENGTH + MAX_PINS * 1000 < 2**20
    noise = {str(number): hash((number, "noise")) for number in range(2000)}
    assert keep_config({}, [make_pin()], commit=COMMIT, config=json.dumps(noise)) == {}


def test_line_that_is_there_is_not_packed_again() -> None:
    kept = {COMMIT: "as it is"}
    assert keep_config(kept, [make_pin()], commit=COMMIT, config=json.dumps(CONFIG)) == kept


@pytest.mark.parametrize("text", ["", "[]", "5", "[" * 100_000, '{"a": 1}'])
def test_what_cannot_be_read_counts_as_not_kept(text: str) -> None:
    assert parse_kept(text) == {}


@pytest.mark.parametrize("packed", ["", "no base 85 \x00", "ABCDE", "c$@"])
def test_damaged_configuration_is_looked_up_anew(packed: str) -> None:
    assert recall_config({COMMIT: packed}, COMMIT) is None
    assert recall_config({}, COMMIT) is None


def test_world_finds_what_the_ledger_holds() -> None:
    kept = keep_config({}, [make_pin()], commit=COMMIT, config=json.dumps(CONFIG))
    ledger = build_pins(OWNER, (make_pin(),), kept)
    service = {
        "metadata": {"name": OWNER.name, "namespace": OWNER.namespace, "uid": OWNER.uid},
        "spec": {"model": {"uri": URI}},
    }
    world = parse_world(service, Children(config_maps=(ledger,)))
    assert world.configs == kept
    assert world.pins == (make_pin(),)
    assert CONFIGS_KEY not in build_pins(OWNER, (make_pin(),), {})["data"]
