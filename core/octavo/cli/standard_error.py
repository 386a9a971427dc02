"""Logs of all commands go to standard error, wherever that leads by the time a line is written."""

from __future__ import annotations

import logging
import sys
from typing import TextIO


class StandardErrorHandler(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is by then: whoever replaced it may have closed the earlier one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        self.stream = sys.stderr
        super().emit(record)
