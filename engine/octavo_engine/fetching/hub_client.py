"""The hub's official client, configured once: plain HTTP, no progress bars of its own, no endless wait.

The client gives most of its requests no time limit, so a hub that takes a connection and stays silent
would hold a fetch for ever.
"""

from __future__ import annotations

import os
from typing import Any, Final

os.environ.setdefault("HF_HUB_DISABLE_XET", "1")  # read when the client is imported
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from huggingface_hub import HfApi, errors, hf_hub_url, set_client_factory
from huggingface_hub.file_download import http_get
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]
from huggingface_hub.utils._http import default_client_factory

__all__ = ["HfApi", "RepoFile", "build_hf_headers", "errors", "hf_hub_url", "http_get"]

SILENCE_SECONDS: Final = 30.0
"""That the hub may take to accept a connection, or between two parts of an answer."""


def limit_silence(request: Any) -> None:  # noqa: ANN401 - of whichever HTTP library the client uses
    """Fill in the time limits that a request lacks."""
    limits = request.extensions.get("timeout", {})
    given = {name: limit for name, limit in limits.items() if limit is not None}
    defaults = dict.fromkeys(("connect", "read", "write"), SILENCE_SECONDS)
    request.extensions["timeout"] = {"pool": None, **defaults, **given}


def _build_client() -> Any:  # noqa: ANN401
    client = default_client_factory()
    hooks = client.event_hooks
    client.event_hooks = {**hooks, "request": [*hooks["request"], limit_silence]}
    return client


set_client_factory(_build_client)
