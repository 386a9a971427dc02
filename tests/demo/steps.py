"""Numbered steps that say what they do while they do it, and how long each took."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO


@dataclass(slots=True, kw_only=True)
class Steps:
    """Prints `[3/9] title`, what the step reports, and its seconds; keeps the times for the summary."""

    total: int
    out: TextIO = field(default_factory=lambda: sys.stdout)
    times: list[tuple[str, float]] = field(default_factory=list)
    running: str = ""

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Time one step. A step that raises keeps its title in `running`, for the failure's own words."""
        self.running = title
        self.say(f"\n[{len(self.times) + 1}/{self.total}] {title}")
        started = time.monotonic()
        yield
        seconds = time.monotonic() - started
        self.times.append((title, seconds))
        self.running = ""
        self.say(f"      done in {seconds:.1f} s")

    def say(self, text: str) -> None:
        print(text, file=self.out, flush=True)

    def detail(self, text: str) -> None:
        """What happens inside a step, set in under its title."""
        for line in text.splitlines():
            self.say(f"      {line}")

    def summary(self) -> str:
        total = sum(seconds for _, seconds in self.times)
        rows = [f"  {seconds:7.1f} s  {title}" for title, seconds in self.times]
        return "\n".join([*rows, f"  {total:7.1f} s  in all"])
