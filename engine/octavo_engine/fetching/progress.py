"""Progress of a fetch: a bar for a person at a terminal, a line of the log now and then for all else.

What is told is measured when it is asked for: sizes of files on the disk, or bytes read so far. So it
is right also while another pod does the work on a shared volume.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TextIO

from octavo.model_files import ModelFile
from octavo.units import format_bytes

logger = logging.getLogger(__name__)

LOG_EVERY_SECONDS: Final = 5.0
BAR_WIDTH: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How far it is."""

    bytes_done: int = 0
    bytes_total: int = 0
    files_done: int = 0
    files_total: int = 0
    file: str = ""
    """One that is being worked on."""
    trouble: str = ""
    """Why nothing comes at the moment, while another try may help."""


class Tally:
    """Bytes and files that threads have read so far."""

    def __init__(self, *, bytes_total: int, files_total: int) -> None:
        self._lock = threading.Lock()
        self._measure = Measure(bytes_total=bytes_total, files_total=files_total)
        self._bytes_done = self._files_done = 0
        self._file = ""

    def begin(self, file: str) -> None:
        """A file is read from now on."""
        self._file = file

    def add_bytes(self, count: int) -> None:
        """So many more were read."""
        with self._lock:
            self._bytes_done += count

    def end(self) -> None:
        """A file was read to its end."""
        with self._lock:
            self._files_done += 1

    def measure(self) -> Measure:
        return Measure(
            bytes_done=self._bytes_done,
            bytes_total=self._measure.bytes_total,
            files_done=self._files_done,
            files_total=self._measure.files_total,
            file=self._file,
        )


def measure_files(
    files: Sequence[ModelFile], folder: Path, partial_of: Callable[[ModelFile], Path]
) -> Measure:
    """By what lies in the folder: whole files, and the parts of those that are under way."""
    done = {file.path for file in files if _size(folder / file.path) == file.size}
    partial = {file.path: min(_size(partial_of(file)), file.size) for file in files if file.path not in done}
    return Measure(
        bytes_done=sum(file.size for file in files if file.path in done) + sum(partial.values()),
        bytes_total=sum(file.size for file in files),
        files_done=len(done),
        files_total=len(files),
        file=next((path for path, size in partial.items() if size), ""),
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class Progress:
    """Shows a stage's measure; asked from other threads too, it answers with the stage of the moment."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._verb = "fetched"
        self._trouble = ""
        self._measure: Callable[[], Measure] = Measure
        self._started = self._last_logged = time.monotonic()
        self._bytes_at_start = 0

    def begin(self, verb: str, measure: Callable[[], Measure]) -> None:
        """A stage begins: `verb` says in the past tense what it does to bytes."""
        self._verb, self._measure = verb, measure
        self._started = self._last_logged = time.monotonic()
        self._bytes_at_start = measure().bytes_done

    def measure(self) -> Measure:
        """Of the stage of the moment."""
        return replace(self._measure(), trouble=self._trouble)

    def tell_trouble(self, trouble: str) -> None:
        """Why it does not go on, or an empty text when it does."""
        self._trouble = trouble

    def show(self) -> None:
        """Draw the bar, or log if it is time to."""
        if self._is_terminal:
            self._draw(self.measure())
        elif time.monotonic() - self._last_logged >= LOG_EVERY_SECONDS:
            self._last_logged = time.monotonic()
            self._log(self.measure())

    def finish(self) -> None:
        """The last word of a stage, said in any case."""
        if self._is_terminal:
            self._draw(self.measure())
            self._stream.write("\n")
        else:
            self._log(self.measure())

    def _draw(self, measure: Measure) -> None:
        ratio = min(1.0, measure.bytes_done / measure.bytes_total) if measure.bytes_total else 1.0
        bar = "#" * round(ratio * BAR_WIDTH)
        self._stream.write(f"\r{bar:<{BAR_WIDTH}} {ratio:4.0%}  {self._verb} {self._numbers(measure)}   ")
        self._stream.flush()

    def _log(self, measure: Measure) -> None:
        logger.info(
            "%s %s",
            self._verb,
            self._numbers(measure),
            extra={"bytes_done": measure.bytes_done, "bytes_total": measure.bytes_total},
        )

    def _numbers(self, measure: Measure) -> str:
        seconds = max(0.001, time.monotonic() - self._started)
        speed = format_bytes(int(max(0, measure.bytes_done - self._bytes_at_start) / seconds))
        return f"{format_bytes(measure.bytes_done)} of {format_bytes(measure.bytes_total)}, {speed}/s"
