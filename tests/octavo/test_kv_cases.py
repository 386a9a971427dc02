"""Every real case agrees, and the page that shows them is current."""

from __future__ import annotations

import pytest

from octavo.architecture import parse_architecture
from octavo.errors import Unsupported
from tests.octavo.kv_cases import CASES, EXPLAINED, NOT_COMPARED, PAGE, config_of, render, rows_of, verdict


@pytest.mark.parametrize("case_id", sorted(set(CASES) - set(NOT_COMPARED) - set(EXPLAINED)))
def test_sizes_agree_with_the_real_ones(case_id: str) -> None:
    rows = rows_of(CASES[case_id])
    assert rows
    assert [row for row in rows if not row.agrees] == []


@pytest.mark.parametrize("case_id", sorted(EXPLAINED))
def test_deviation_is_there_when_it_is_explained(case_id: str) -> None:
    assert verdict(case_id) == "explained"


@pytest.mark.parametrize("case_id", sorted(NOT_COMPARED))
def test_case_has_nothing_to_compare_when_it_says_so(case_id: str) -> None:
    assert rows_of(CASES[case_id]) == []


def test_architecture_is_unsupported_with_what_is_known_when_no_form_is_verified() -> None:
    answer = parse_architecture(config_of(CASES["A95"]) or {})
    assert isinstance(answer, Unsupported)
    assert "compressed attention" in answer.reason
    assert "num_hidden_layers=43" in answer.known


def test_page_is_current() -> None:
    assert PAGE.read_text() == render(), "run `python -m tests.octavo.kv_cases`"


def test_cases_are_all_there() -> None:
    assert len(CASES) == 116
