"""A fetch as a command does it: from whichever source, with progress for people and for the operator."""

from __future__ import annotations

import sys
from pathlib import Path

from octavo.model_source import HubSource
from octavo_engine.fetching.fetch import fetch
from octavo_engine.fetching.hub import Hub
from octavo_engine.fetching.links import link_files
from octavo_engine.fetching.manifest import Manifest
from octavo_engine.fetching.order import FetchOrder
from octavo_engine.fetching.progress import Progress
from octavo_engine.fetching.progress_server import progress_served


def bring(order: FetchOrder, *, token_file: Path | None, progress_port: int | None) -> Manifest:
    """Bring the order's folder to its commit; raises FetchFailed."""
    progress = Progress(sys.stderr)
    with progress_served(progress, progress_port):
        if isinstance(order.source, HubSource):
            hub = Hub(order.source.repository, token_file=token_file, tell_trouble=progress.tell_trouble)
            return fetch(order, hub, progress)
        assert order.mount is not None, f"{order}: checked when it was parsed"
        return link_files(order, order.mount, progress)
