"""Structured logs: one JSON object a line, or plain text for people."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

from octavo.cli.standard_error import StandardErrorHandler

EXTRA_FIELDS: Final = ("namespace", "service", "reason", "seconds", "event")


class JsonFormatter(logging.Formatter):
    """Time, level, logger, message, the object it is about, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": moment,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {field: record.__dict__[field] for field in EXTRA_FIELDS if field in record.__dict__}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logs(log_format: str) -> None:
    stream = StandardErrorHandler()
    plain = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    stream.setFormatter(JsonFormatter() if log_format == "json" else plain)
    root = logging.getLogger()
    root.handlers[:] = [stream]
    root.setLevel(logging.INFO)
    # kopf tells of every event it sees, and the HTTP clients of every request.
    for name in ("kopf", "httpx", "httpx2", "huggingface_hub", "aiohttp.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
