"""Logs of operator and engine: where they go when standard error is another one than at the start."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator

import pytest

from octavo_engine.cli.logs import set_up_logging
from octavo_operator.shell.logs import configure_logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("configure", [set_up_logging, configure_logs])
def test_log_is_no_logging_error_after_standard_error_was_replaced_and_closed(
    configure: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs of tests were full of tracebacks: the handler kept what an earlier test captured."""
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr("sys.stderr", first)
    configure("json")
    monkeypatch.setattr("sys.stderr", second)
    first.close()
    logging.getLogger("octavo").warning("seen")
    assert '"message": "seen"' in second.getvalue()
    assert "Logging error" not in second.getvalue()
