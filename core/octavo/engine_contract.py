"""What the operator and the engine agree on: metric names, paths, ports, flags and files.

Both sides import these names, so that neither can drift. Metric names that start with `vllm:` are
those of vLLM, verbatim: dashboards, KEDA recipes and the Gateway API Inference Extension read them.
"""

from __future__ import annotations

from typing import Final

# HTTP -------------------------------------------------------------------------------------------
DEFAULT_PORT: Final = 8000
HEALTH_PATH: Final = "/health"
"""200 while the engine thread's heartbeat is fresh, else 503."""
READY_PATH: Final = "/ready"
"""200 once one token was generated at start and until the drain begins, else 503."""
METRICS_PATH: Final = "/metrics"
VERSION_PATH: Final = "/version"

FETCH_PROGRESS_PORT: Final = 8001
"""Where `octavo-engine fetch` says how far it is, from its start to its end."""
FETCH_PROGRESS_PATH: Final = "/progress"
"""JSON: `bytes_done`, `bytes_total`, `files_done`, `files_total`, and `file` and `trouble`, which may be
empty: what is worked on, and what another try is waiting for."""

# Files ------------------------------------------------------------------------------------------
MODELS_ROOT: Final = "/models"
"""Where the model volume is mounted in a pod; a model lies in `/models/<commit>` (`model_folder`)."""
SOURCE_ROOT: Final = "/source"
"""Where the claim of a `pvc://` model or the image of an `oci://` one is mounted, read-only."""
TOKEN_FILE: Final = "/var/run/octavo/token"
"""Where the key `token` of the Secret with a hub's credentials is mounted."""
MANIFEST_FILE: Final = ".octavo-manifest.json"
"""Written beside the fetched files: repository, commit, and path, size and digest of each file."""
VERIFIED_FILE: Final = ".verified"
"""Written last by `octavo-engine fetch`: every file matched its digest."""
TERMINATION_LOG: Final = "/dev/termination-log"
"""JSON `{"reason": CamelCase, "message": text}`, at most 4096 bytes, written by a command that failed;
of a resolver that succeeded it is a report (`octavo.model_report`)."""

ENGINE_DEVICES: Final[tuple[str, ...]] = ("cpu",)
"""PyTorch's names of the devices that the engine computes on."""

# Reasons that a termination message can carry ---------------------------------------------------
REASON_REPO_NOT_FOUND: Final = "RepositoryNotFound"
REASON_REVISION_NOT_FOUND: Final = "RevisionNotFound"
REASON_GATED: Final = "AccessDenied"
REASON_FILE_MISSING: Final = "FileMissing"
REASON_DIGEST_MISMATCH: Final = "DigestMismatch"
REASON_DISK_FULL: Final = "DiskFull"
REASON_HUB_UNAVAILABLE: Final = "HubUnavailable"
REASON_SOURCE_UNREADABLE: Final = "SourceUnreadable"
"""A volume or an image that lacks the folder, does not hand out a file, or is being written to."""
REASON_NOT_WRITABLE: Final = "VolumeNotWritable"
"""The model volume, to the user that a pod runs as."""
REASON_INVALID_CONFIG: Final = "InvalidConfig"
REASON_INSUFFICIENT_MEMORY: Final = "InsufficientMemory"
REASON_UNSUPPORTED_MODEL: Final = "UnsupportedModel"
REASON_INVALID_ARGUMENTS: Final = "InvalidArguments"

# Flags of `octavo-engine serve` that the operator renders (a user's `spec.engine.args` may not repeat them)
FLAG_MODEL: Final = "--model"
FLAG_SERVED_MODEL_NAME: Final = "--served-model-name"
FLAG_REVISION: Final = "--revision"
FLAG_HOST: Final = "--host"
FLAG_PORT: Final = "--port"
FLAG_MAX_MODEL_LEN: Final = "--max-model-len"
FLAG_MAX_NUM_SEQS: Final = "--max-num-seqs"
FLAG_MAX_NUM_BATCHED_TOKENS: Final = "--max-num-batched-tokens"
FLAG_PLANNED_KV_BLOCKS: Final = "--planned-kv-blocks"
FLAG_BLOCK_SIZE: Final = "--block-size"
FLAG_KV_CACHE_DTYPE: Final = "--kv-cache-dtype"
FLAG_NO_PREFIX_CACHING: Final = "--no-enable-prefix-caching"
"""Rendered for `spec.engine.prefixCaching: false`; takes no value."""
FLAG_DRAIN_ACCEPT_SECONDS: Final = "--drain-accept-seconds"
FLAG_SHUTDOWN_TIMEOUT: Final = "--shutdown-timeout"

RESERVED_FLAGS: Final = frozenset(
    {
        FLAG_MODEL,
        FLAG_SERVED_MODEL_NAME,
        FLAG_REVISION,
        FLAG_HOST,
        FLAG_PORT,
        FLAG_MAX_MODEL_LEN,
        FLAG_MAX_NUM_SEQS,
        FLAG_PLANNED_KV_BLOCKS,
        FLAG_BLOCK_SIZE,
        FLAG_KV_CACHE_DTYPE,
        FLAG_NO_PREFIX_CACHING,
        FLAG_DRAIN_ACCEPT_SECONDS,
        FLAG_SHUTDOWN_TIMEOUT,
    }
)

FLAG_API_KEY: Final = "--api-key"
API_KEY_VARIABLE: Final = "OCTAVO_API_KEY"
"""Keys that clients send, separated by commas. Probes, metrics and version need none."""

# Flags of `octavo-engine fetch` and `resolve` ---------------------------------------------------
FLAG_FETCH_URI: Final = "--uri"
FLAG_FETCH_REVISION: Final = "--revision"
"""Of `fetch` a commit: 40 hex digits, or the manifest digest `sha256:…` of a volume or an image."""
FLAG_TOKEN_FILE: Final = "--token-file"
"""A file with a hub's token; never in the environment, the arguments or a log."""
FLAG_SOURCE: Final = "--source"
"""Where a `pvc://` claim or an `oci://` image is mounted; the path in a `pvc://` URI lies below it."""
FLAG_FETCH_TO: Final = "--to"
"""Of `fetch`: the model's folder. Of a volume or an image it gets links and the record, no copies."""
FLAG_MANIFEST_DIGEST: Final = "--manifest-digest"
"""Of `fetch`: refuse files whose manifest has another digest than the one that was resolved."""
FLAG_PROGRESS_PORT: Final = "--progress-port"
"""Of `fetch`: serve FETCH_PROGRESS_PATH on it; absent: nowhere."""
FLAG_VERIFY: Final = "--verify"
"""Of `fetch`: read every byte of files that are there, not only of those that were written to since."""
FLAG_REPORT: Final = "--report"
"""Of `resolve`: the file to write the encoded `ModelReport` into, such as TERMINATION_LOG."""

# Metrics: vLLM's names --------------------------------------------------------------------------
LABEL_MODEL: Final = "model_name"

NUM_REQUESTS_RUNNING: Final = "vllm:num_requests_running"
NUM_REQUESTS_WAITING: Final = "vllm:num_requests_waiting"
KV_CACHE_USAGE: Final = "vllm:kv_cache_usage_perc"
"""A ratio, 0 to 1, in spite of its name (vLLM's own)."""
NUM_PREEMPTIONS: Final = "vllm:num_preemptions_total"
PROMPT_TOKENS: Final = "vllm:prompt_tokens_total"
GENERATION_TOKENS: Final = "vllm:generation_tokens_total"
REQUEST_SUCCESS: Final = "vllm:request_success_total"
"""Labelled `finished_reason`: stop or length."""
TIME_TO_FIRST_TOKEN: Final = "vllm:time_to_first_token_seconds"
INTER_TOKEN_LATENCY: Final = "vllm:inter_token_latency_seconds"
E2E_REQUEST_LATENCY: Final = "vllm:e2e_request_latency_seconds"
REQUEST_QUEUE_TIME: Final = "vllm:request_queue_time_seconds"
CACHE_CONFIG_INFO: Final = "vllm:cache_config_info"
"""Labels `block_size` and `num_gpu_blocks` (vLLM's name for the number of KV blocks)."""
LORA_REQUESTS_INFO: Final = "vllm:lora_requests_info"
"""Labels `max_lora`, and `running_lora_adapters` and `waiting_lora_adapters`, names joined by commas; the
value is the time of the scrape. The Gateway API Inference Extension picks replicas by it."""

# Metrics: Octavo's own --------------------------------------------------------------------------
REQUESTS_ARRIVED: Final = "octavo_requests_arrived_total"
REQUESTS_ADMITTED: Final = "octavo_requests_admitted_total"
REQUESTS_FINISHED: Final = "octavo_requests_finished_total"
"""Labelled `reason`: stop, length, abort, error."""
RECOMPUTED_TOKENS: Final = "octavo_recomputed_tokens_total"
CACHED_PROMPT_TOKENS: Final = "octavo_cached_prompt_tokens_total"
DRAFT_TOKENS: Final = "octavo_draft_tokens_total"
"""Guessed by speculation and computed."""
ACCEPTED_DRAFT_TOKENS: Final = "octavo_accepted_draft_tokens_total"
UNCACHED_PROMPT_TOKENS: Final = "octavo_uncached_prompt_tokens"
"""A histogram over admissions: prompt tokens that the cache did not have. A resumption after a preemption
is none."""
UNCACHED_PROMPT_TOKENS_SQUARED: Final = "octavo_uncached_prompt_tokens_squared_total"
"""Of the same numbers; with the histogram's sum and count it gives their variance."""
UNCACHED_PROMPT_BOUNDS: Final = tuple(factor << power for power in range(3, 17) for factor in (2, 3))
"""16, 24, 32, 48 and so on to 196608."""
OUTPUT_TOKENS: Final = "octavo_request_output_tokens"
"""A histogram over requests that ended by themselves: tokens that were generated for each."""
OUTPUT_BOUNDS: Final = (1, *(factor << power for power in range(15) for factor in (2, 3)))
"""1, 2, 3, 4, 6, 8, 12 and so on to 49152."""

# What the steps did, summed: with the steps and their seconds it tells T = a + b·p + c·C + d·B.
STEPS: Final = "octavo_engine_steps_total"
STEP_SECONDS: Final = "octavo_engine_step_seconds_total"
"""From choosing a step's tokens to noting what it drew."""
STEP_PREFILL_TOKENS: Final = "octavo_step_prefill_tokens_total"
"""Σp: tokens of prompts, and of texts computed again, that the steps computed. Neither the one token of a
sequence that generates nor its drafts."""
STEP_CONTEXT_TOKENS: Final = "octavo_step_context_tokens_total"
"""ΣC: cached tokens that the steps' attention read, their own included; in tokens of all layers, so that
this times the bytes per token is what was read. Layers with a window count for what they read."""
STEP_SEQUENCES: Final = "octavo_step_sequences_total"
"""ΣB: sequences that were in the steps, prefilled or generating."""

KV_BLOCKS: Final = "octavo_kv_blocks"
"""Labelled `state`: total, referenced, cached, free. A block that several sequences share is one."""
KV_TOKENS: Final = "octavo_kv_tokens"
"""Labelled `state`: total, referenced, cached. The same blocks in tokens of all layers: where layers form
several groups with blocks of their own, a token takes a slot in each."""
KV_BYTES_PER_TOKEN: Final = "octavo_kv_bytes_per_token"
"""Of all layers."""
WEIGHT_BYTES: Final = "octavo_weight_bytes"
MAX_SEQUENCES: Final = "octavo_max_sequences"
MAX_MODEL_LEN: Final = "octavo_max_model_len"
"""Prompt and output together, lowered to what the pool holds."""
MAX_BATCHED_TOKENS: Final = "octavo_max_batched_tokens"
"""The token budget of a step."""

# Measured at start by an engine on a CPU, whose kind no table lists; what a CPU quota withholds is off.
MEASURED_READ_RATE: Final = "octavo_measured_read_bytes_per_second"
"""Weights through a projection of one row."""
MEASURED_GEMM_RATE: Final = "octavo_measured_gemm_flop_per_second"
"""A projection of many rows, in the dtype that the engine runs."""
MEASURED_STEP_SECONDS: Final = "octavo_measured_step_seconds"
"""A step of one token without context. For a small model it is more than its bytes tell."""

MEASURED_KV_BLOCKS: Final = "octavo_measured_kv_blocks"
"""What the engine's own budget would hold, measured without looking at the plan."""
PLAN_TOLERANCE: Final = 0.03
"""Of the planned KV cache: by how much the measured one may differ before somebody should look."""
PLANNED_KV_BLOCKS: Final = "octavo_planned_kv_blocks"
DRAINING: Final = "octavo_draining"
TTFT_SECONDS: Final = "octavo_ttft_seconds"
TPOT_SECONDS: Final = "octavo_request_tpot_seconds"
ENGINE_INFO: Final = "octavo_engine_info"
"""Labels `revision` (the commit), `manifest_digest`, `device`, `dtype`, `kv_dtype`, `kernel_path` and
`version`."""
KERNEL_LAYERS: Final = "octavo_kernel_layers"
"""Labels `kind` (of layer), `path` (of kernels) and `reason` (empty where there are no faster ones); the
value is the number of such layers. A quiet fallback shows as a path that is not the expected one."""
