"""Progress of a fetch: a bar for a person at a terminal, a line of the log now and then for all else."""

from __future__ import annotations

import logging
import time
from typing import Final, TextIO

from octavo.units import format_bytes

logger = logging.getLogger(__name__)

LOG_EVERY_SECONDS: Final = 5.0
BAR_WIDTH: Final = 30


class Progress:
    """Shows how many bytes are there."""

    def __init__(self, total: int, stream: TextIO) -> None:
        self._total = total
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._started = self._last_logged = time.monotonic()

    def show(self, done: int) -> None:
        """So many bytes are there now."""
        if self._is_terminal:
            self._draw(done)
        elif time.monotonic() - self._last_logged >= LOG_EVERY_SECONDS:
            self._last_logged = time.monotonic()
            self._log(done)

    def finish(self, done: int) -> None:
        """The last word, said in any case."""
        if self._is_terminal:
            self._draw(done)
            self._stream.write("\n")
        else:
            self._log(done)

    def _draw(self, done: int) -> None:
        ratio = done / self._total if self._total else 1.0
        bar = "#" * round(ratio * BAR_WIDTH)
        self._stream.write(f"\r{bar:<{BAR_WIDTH}} {ratio:4.0%}  {self._numbers(done)}   ")
        self._stream.flush()

    def _log(self, done: int) -> None:
        logger.info("fetched %s", self._numbers(done), extra={"bytes_done": done, "bytes_total": self._total})

    def _numbers(self, done: int) -> str:
        seconds = max(0.001, time.monotonic() - self._started)
        return f"{format_bytes(done)} of {format_bytes(self._total)}, {format_bytes(int(done / seconds))}/s"
