"""What really runs, as one record: for the start log, `/version` and `octavo-engine warm`.

An operator of the service can tell from it a quiet fallback from a healthy engine, and which bytes answer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from octavo_engine.engine_facts import EngineFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFile:
    """One file of the model, as it was verified when it was fetched."""

    path: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which model and build answers."""

    model_name: str
    revision: str
    manifest_digest: str
    version: str
    repository: str = ""
    files: tuple[ServedFile, ...] = ()
    """Empty where the folder has no record of a fetch: then nobody vouches for its bytes."""


def what_runs(identity: Identity, facts: EngineFacts) -> dict[str, object]:
    """The record, fit for JSON."""
    return {
        "version": identity.version,
        "model": identity.model_name,
        "repository": identity.repository,
        "revision": identity.revision,
        "manifest_digest": identity.manifest_digest,
        "files": [asdict(file) for file in identity.files],
        "device": facts.device,
        "num_threads": facts.num_threads,
        "dtype": facts.dtype,
        "kv_dtype": facts.kv_dtype,
        "kernel_path": facts.kernel_path,
        "kernels": [asdict(kernels) for kernels in facts.kernels],
        **_limits(facts),
        "speed": None if facts.speed is None else asdict(facts.speed),
    }


def _limits(facts: EngineFacts) -> dict[str, object]:
    return {
        "block_size": facts.block_size,
        "num_kv_blocks": facts.num_kv_blocks,
        "kv_blocks_bound": facts.kv_blocks_bound,
        "measured_kv_blocks": facts.measured_kv_blocks,
        "planned_kv_blocks": facts.planned_kv_blocks,
        "kv_bytes_per_token": facts.kv_bytes_per_token,
        "weights_bytes": facts.weights_bytes,
        "memory_limit_bytes": facts.memory_limit_bytes,
        "context_len": facts.context_len,
        "max_model_len": facts.max_model_len,
        "max_num_seqs": facts.max_num_seqs,
        "max_num_batched_tokens": facts.max_num_batched_tokens,
        "max_waiting": facts.max_waiting,
        "prefix_caching": facts.prefix_caching,
        "speculative_ngram": facts.speculative_ngram,
        "max_adapters": facts.max_adapters,
    }
