"""Progress of loading a model: a bar for a person at a terminal, lines of the log for all else."""

from __future__ import annotations

import logging
from typing import Final, TextIO

logger = logging.getLogger("octavo_engine.loading")

BAR_WIDTH: Final = 30


class LoadingProgress:
    """Takes each stage and the share of it that is done, which stays 0 where a stage cannot tell."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._told: dict[str, int] = {}

    def __call__(self, stage: str, share: float) -> None:
        """Tell of a stage's beginning and of every quarter, or draw its bar."""
        steps = 100 if self._is_terminal else 4
        step = int(share * steps)
        if self._told.get(stage) == step:
            return
        began = stage in self._told
        self._told[stage] = step
        if self._is_terminal and (began or share > 0):
            self._draw(stage, share)
        else:
            logger.info("loading: %s %d%%", stage, round(share * 100), extra={"stage": stage, "share": share})

    def _draw(self, stage: str, share: float) -> None:
        bar = "#" * round(share * BAR_WIDTH)
        end = "\n" if share >= 1 else ""
        self._stream.write(f"\r{bar:<{BAR_WIDTH}} {share:4.0%}  {stage}   {end}")
        self._stream.flush()
