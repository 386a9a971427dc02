"""One log line for each exchange: who asked for how much and how it ended. No text, unless asked for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from octavo_engine.server.answering import Answer

logger = logging.getLogger(__name__)

LogLevel = Literal["off", "summary", "prompts"]
EXCHANGE: Final = "octavo.exchange"
"""Where a request's ASGI scope holds its `Exchange`."""


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A request and what became of it so far."""

    request_id: str
    method: str
    path: str
    started: float = field(default_factory=time.monotonic)
    status: int | None = None
    first_byte_seconds: float | None = None
    is_complete: bool = False
    """The last byte of the answer was handed over; else the client left before."""
    answer: Answer | None = None
    """Where tokens were asked for."""

    def sent(self, message_type: str, *, status: int | None, is_last: bool) -> None:
        """Note a message on its way to the client."""
        if message_type == "http.response.start":
            self.status = status
            return
        if self.first_byte_seconds is None:
            self.first_byte_seconds = time.monotonic() - self.started
        self.is_complete = is_last


class RequestLog:
    """Writes the lines; `decode` makes prompts readable where they are wanted."""

    def __init__(self, level: LogLevel, decode: Callable[[tuple[int, ...]], str]) -> None:
        self._level = level
        self._decode = decode

    def ended(self, exchange: Exchange) -> None:
        """Log an exchange that is over."""
        if self._level == "off":
            return
        seconds = time.monotonic() - exchange.started
        fields: dict[str, object] = {
            "request_id": exchange.request_id,
            "method": exchange.method,
            "path": exchange.path,
            "status": exchange.status,
            "seconds": round(seconds, 4),
            "complete": exchange.is_complete,
        }
        if exchange.first_byte_seconds is not None:
            fields["first_byte_seconds"] = round(exchange.first_byte_seconds, 4)
        if exchange.answer is not None:
            fields |= _counts(exchange.answer)
            if self._level == "prompts":
                fields["prompts"] = self._prompts(exchange.answer)
        failed = exchange.status is None or exchange.status >= 500
        logger.log(logging.WARNING if failed else logging.INFO, "%s", _words(fields), extra=fields)

    def _prompts(self, answer: Answer) -> list[str]:
        firsts = answer.choices[:: answer.choices_per_prompt]
        return [self._decode(choice.request.prompt_token_ids) for choice in firsts]


def _counts(answer: Answer) -> dict[str, object]:
    usage = answer.counts()
    return {
        "model": answer.model,
        "choices": len(answer.choices),
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "completion_tokens": usage.completion_tokens,
        "finish_reasons": [choice.reported_finish_reason for choice in answer.choices],
    }


def _words(fields: dict[str, object]) -> str:
    """For a person at a terminal; the same is in the fields."""
    end = "" if fields["complete"] else ", client left"
    tokens = ""
    if "model" in fields:
        tokens = f", {fields['prompt_tokens']} + {fields['completion_tokens']} tokens"
    return (
        f"{fields['method']} {fields['path']} {fields['status']}{tokens}, {fields['seconds']} s{end} "
        f"[{fields['request_id']}]"
    )
