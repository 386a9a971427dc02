"""The transient memory of one engine step, beside weights and KV cache.

A step holds, at its widest point, the intermediate of one MLP and a few copies of the hidden state
for every batched token, and the logits in float32 for every sequence that samples. So the peak
depends on `max_num_batched_tokens` and `max_num_seqs`, and hardly on the depth of the model.
"""

from __future__ import annotations

from typing import Final

from octavo.architecture import ModelArchitecture
from octavo.dtypes import MODEL_DTYPE_BYTES
from octavo.units import ceil_div

HIDDEN_COPIES: Final = 8
"""Residual, norm, attention input and output, query/key/value, MLP input and output, alive together."""
LOGIT_COPIES: Final = 3
"""Logits, probabilities and one scratch copy while sampling."""
LOGIT_BYTES: Final = 4


def activation_bytes(
    arch: ModelArchitecture,
    *,
    dtype: str,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    tensor_parallel: int = 1,
) -> int:
    """Peak bytes of one step on one device."""
    per_token = HIDDEN_COPIES * arch.hidden_size + ceil_div(arch.widest_activation, tensor_parallel)
    rows = min(max_num_seqs, max_num_batched_tokens)
    return (
        max_num_batched_tokens * per_token * MODEL_DTYPE_BYTES[dtype]
        + rows * arch.vocab_size * LOGIT_BYTES * LOGIT_COPIES
    )
