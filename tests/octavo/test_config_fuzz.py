"""Any JSON object as a configuration gives an answer, a clear no, or an `InvalidConfig`."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.accelerators import find_accelerator
from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.errors import InvalidConfig, Unsupported
from octavo.families.registry import FAMILIES
from octavo.kv_sizing import sequence_bytes
from octavo.planning import Infeasible, MemoryPlan, Workload, plan_accelerator, plan_cpu
from octavo.weights import params_total, weights_bytes
from tests.octavo.kv_cases import CASES, config_of

HOSTILE: tuple[Any, ...] = (
    None, 0, -1, 1, 2, 3, True, False, "", "8", "auto", "nan", [], {}, [0], [None], [[]], {"a": 1}, 1.5,
    4096.0, float("nan"), float("inf"), -float("inf"), 2**31, 2**63, 10**5000, "x" * 10_000,
    [1] * 5000, [{}] * 3,
)  # fmt: skip
QUANTIZED = ("C17", "C21", "C31", "C41")
CONFIGS = {
    case_id: config
    for case_id, case in CASES.items()
    if (config := config_of(case)) is not None and (case["section"] == "A" or case_id in QUANTIZED)
}


def answer(config: dict[str, Any], *, with_plan: bool = True) -> None:
    """Parse and plan as the command line does; anything but the three kinds of answer fails the test."""
    try:
        arch = parse_architecture(config)
    except InvalidConfig as error:
        assert 0 < len(str(error)) < 500
        return
    if isinstance(arch, Unsupported):
        assert arch.reason
        return
    assert isinstance(arch, ModelArchitecture)
    assert params_total(arch) > 0
    assert weights_bytes(arch) > 0
    sizes = sequence_bytes(arch, 4096, kv_dtype="auto")
    assert 0 <= sizes.windowed_ideal <= sizes.full
    if not with_plan:
        return
    workload = Workload(lengths=(4096,))
    for plan in (
        plan_cpu(arch, workload, memory_limit_bytes=None),
        plan_cpu(arch, workload, memory_limit_bytes=1 << 30),
        plan_accelerator(arch, workload, accelerator=find_accelerator("H100-80GB"), devices=1),
    ):
        assert isinstance(plan, MemoryPlan | Infeasible)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FIELD_NAMES = sorted({name for config in CONFIGS.values() for name in config} | {"text_config", "dtype"})


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(FIELD_NAMES), JSON, max_size=8), st.sampled_from(sorted(FAMILIES)))
def test_config_gives_an_answer_or_a_refusal_when_its_fields_are_anything(
    fields: dict[str, Any], model_type: str
) -> None:
    answer({"model_type": model_type, **fields})


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_config_gives_an_answer_or_a_refusal_when_it_is_any_json(value: Any) -> None:
    answer(value)


def every_place(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all members of an object, nested ones too, and of the first items of its lists."""
    items = (
        value.items() if isinstance(value, dict) else enumerate(value[:2] if isinstance(value, list) else ())
    )
    return [place for key, inner in items for place in ((*path, key), *every_place(inner, (*path, key)))]


def replaced(config: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(config)
    holder: Any = changed
    for key in path[:-1]:
        holder = holder[key]
    if value is HOSTILE:  # a sign to remove the field
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return changed


@pytest.mark.parametrize("case_id", sorted(CONFIGS))
def test_config_gives_an_answer_or_a_refusal_when_one_field_is_hostile(case_id: str) -> None:
    config = CONFIGS[case_id]
    random_values = random.Random(case_id)
    for place in every_place(config):
        for value in (*random_values.sample(HOSTILE, 3), HOSTILE):
            answer(replaced(config, place, value), with_plan=random_values.random() < 0.1)


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_config_gives_an_answer_or_a_refusal_when_it_holds_its_type_only(model_type: str) -> None:
    answer({"model_type": model_type})


def test_config_is_refused_by_name_when_a_number_is_a_word() -> None:
    config = {"model_type": "llama", "hidden_size": "4096"}
    with pytest.raises(InvalidConfig, match="hidden_size: must be a whole number, got '4096'"):
        parse_architecture(config)


def test_config_is_answered_when_it_passed_through_json() -> None:
    assert isinstance(parse_architecture(json.loads(json.dumps(CONFIGS["A02"]))), ModelArchitecture)
