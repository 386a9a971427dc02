"""Stop strings: nothing of a match leaves, nothing of a near miss is lost, chunks do not matter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_engine.text.stop_strings import StopStrings


def run(stops: list[str], pieces: list[str]) -> tuple[list[str], str | None]:
    matcher = StopStrings(stops)
    return [*(matcher.push(piece) for piece in pieces), matcher.flush()], matcher.matched


def by_hand(stops: list[str], text: str) -> str:
    """Character by character: the first stop that is complete ends the text before itself."""
    for end in range(1, len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)]
    return text


@pytest.mark.parametrize(
    ("stops", "pieces", "text", "matched"),
    [
        pytest.param(["DEFGHIJ"], ["DEF", "G", "HI", "J"], "", "DEFGHIJ", id="spans all tokens"),
        pytest.param(["DEFGHIJ"], ["DEF", "G", "X"], "DEFGX", None, id="near miss is released"),
        pytest.param(["b,c"], ["a", ",b", ",c", "d"], "a,", "b,c", id="ends inside a token"),
        pytest.param(["ab", "abc"], ["xa", "bc"], "x", "ab", id="a prefix of the other"),
        pytest.param(["bcd", "abcde"], ["abcde"], "a", "bcd", id="first completed wins"),
        pytest.param(["aab"], ["aa", "ab"], "a", "aab", id="overlaps itself"),
        pytest.param([], ["anything"], "anything", None, id="no stops"),
    ],
)
def test_stop_strings_cut_the_text(
    stops: list[str], pieces: list[str], text: str, matched: str | None
) -> None:
    released, found = run(stops, pieces)
    assert ("".join(released), found) == (text, matched)


def test_stop_strings_release_text_as_soon_as_it_is_safe() -> None:
    matcher = StopStrings(["END"])
    assert [matcher.push(piece) for piece in ("abc", "E", "N", "x", "E")] == ["abc", "", "", "ENx", ""]


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.text("abc", max_size=4), max_size=12),
)
def test_stop_strings_do_not_depend_on_chunks(stops: list[str], pieces: list[str]) -> None:
    released, _ = run(stops, pieces)
    assert "".join(released) == by_hand(stops, "".join(pieces))
