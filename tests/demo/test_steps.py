"""The demo says what it does, how long it took, and where it stopped."""

from __future__ import annotations

import io

import pytest

from tests.demo.steps import Steps


def test_step_says_its_number_title_details_and_time() -> None:
    out = io.StringIO()
    steps = Steps(total=2, out=out)
    with steps.step("Do one thing"):
        steps.detail("first\nsecond")
    said = out.getvalue()
    assert "[1/2] Do one thing" in said
    assert "      first\n      second\n" in said
    assert "done in 0.0 s" in said
    assert "Do one thing" in steps.summary()


def test_step_that_fails_is_named_afterwards() -> None:
    steps = Steps(total=1, out=io.StringIO())
    with pytest.raises(OSError), steps.step("Break"):
        raise OSError("broken")
    assert steps.running == "Break"
    assert steps.times == []
