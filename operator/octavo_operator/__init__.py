"""The Octavo operator: turns an `InferenceService` into pinned weights, a memory plan, pods and a status.

`api` holds the resource as typed values, `desired` builds manifests, `decide` takes every decision as a
pure function of what was observed, and `shell` is the only part that touches the world.
"""
