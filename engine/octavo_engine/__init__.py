"""The serving engine: paged KV cache, continuous batching, an OpenAI-compatible server."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# OpenMP reads this once, when torch loads it: waiting threads sleep rather than take a shared core.
