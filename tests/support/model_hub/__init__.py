"""A model hub on this machine, for `huggingface_hub` with `HF_ENDPOINT` set to it.

It speaks the part of the Hugging Face hub's HTTP API that the client uses to resolve revisions, list
files and download them, and it can be told to fail in the ways that the real one does.
"""

from __future__ import annotations

from tests.support.model_hub.seed import FAULTY, SAMPLE, seed_store
from tests.support.model_hub.server import ModelHub
from tests.support.model_hub.store import HubStore, Weather

__all__ = ["FAULTY", "SAMPLE", "HubStore", "ModelHub", "Weather", "seed_store"]
