"""The serving engine: paged KV cache, continuous batching, an OpenAI-compatible server."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# OpenMP reads this once, when torch loads it: waiting threads sleep rather than take a shared core.

os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8")
# oneDNN keeps compiled code and buffers for each shape of a matrix product, 1024 of them by default. Batches
# take hundreds of shapes: a pod grew by 140 MiB within a minute of load, past its planned limit. The layers
# of one step have a handful of shapes, and only those are used again at once.
