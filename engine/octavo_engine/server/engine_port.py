"""What the server needs of an engine, as a type: the real one brings torch, the tests' one a script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from octavo_engine.engine_facts import EngineFacts, EngineStats
from octavo_engine.requests import EngineRequest, Refusal, TokenEvent

AbortReason = Literal["abort", "stop"]
"""`stop`: the text layer found a stop string; the answer is complete."""


class Engine(Protocol):
    """One engine; only the thread that loaded it calls it."""

    @property
    def facts(self) -> EngineFacts: ...
    def add_request(self, request: EngineRequest) -> Refusal | None: ...
    def abort(self, request_id: str, reason: AbortReason = "abort") -> None: ...
    def step(self, now: float) -> Sequence[TokenEvent]: ...
    def has_work(self) -> bool: ...
    def stats(self) -> EngineStats: ...
