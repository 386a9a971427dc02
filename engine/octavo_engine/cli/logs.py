"""Logs: text for a person at a terminal, one JSON object per line for everything else."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

from octavo.cli.standard_error import StandardErrorHandler

STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One object per record; what was passed as `extra` becomes fields of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields.update((name, value) for name, value in vars(record).items() if name not in STANDARD_FIELDS)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def set_up_logging(log_format: str) -> None:
    """Route all loggers to standard error."""
    as_text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    handler = StandardErrorHandler()
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S") if as_text else JsonFormatter()
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for chatty in ("httpx", "httpcore", "httpx2", "uvicorn", "asyncio", "filelock"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its warnings show signed addresses
