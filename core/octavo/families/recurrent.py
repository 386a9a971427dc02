"""Mixers that carry a state from token to token: its size is constant, whatever the context.

A state is one recurrent matrix (or vector) and the last `kernel - 1` inputs of a short convolution.
The recurrent part is kept in float32 where a configuration asks for it (`mamba_ssm_dtype`) or where
the kernel knows nothing else (KDA), else as the served weights.
Source: the state shapes of vLLM's `mamba_utils` and the model classes of `transformers`.
"""

from __future__ import annotations

from typing import Final

from octavo.config_fields import ConfigFields
from octavo.dtypes import MODEL_DTYPE_BYTES, parse_model_dtype
from octavo.families.parts import Part, linear, vector
from octavo.layers import StateCache, StateTensor, Weight
from octavo.model_shape import Dimensions
from octavo.units import ceil_div

FLOAT32_BYTES: Final = 4


def state_element_bytes(fields: ConfigFields) -> int | None:
    """Bytes of an element of the recurrent state, or None for the served type."""
    for name in ("mamba_ssm_dtype", "mamba_ssm_cache_dtype"):
        dtype = parse_model_dtype(fields.raw(name))
        if dtype is not None:
            return MODEL_DTYPE_BYTES[dtype]
    return None


def _state(recurrent: StateTensor | None, conv_elements: int) -> StateCache:
    conv = StateTensor(name="conv", elements=conv_elements)
    return StateCache(tensors=(conv,) if recurrent is None else (recurrent, conv))


def mamba1(
    fields: ConfigFields,
    hidden: int,
    *,
    inner: int,
    state: int,
    kernel: int,
    rank: int,
    conv_bias: bool,
    bias: bool,
    normed: bool = False,
) -> Part:
    """Mamba, arXiv 2312.00752: state of `inner × state`."""
    weights = [
        *linear("mamba.in_proj", 2 * inner, hidden, bias=bias),
        Weight(path="mamba.conv1d", outputs=inner, inputs=kernel, role="vector"),
        *linear("mamba.x_proj", rank + 2 * state, inner, pieces=1),
        *linear("mamba.dt_proj", inner, rank, bias=True),
        Weight(path="mamba.A_log", outputs=inner, inputs=state, role="vector"),
        vector("mamba.D", inner),
        *linear("mamba.out_proj", hidden, inner, bias=bias),
    ]
    if conv_bias:
        weights.append(vector("mamba.conv1d.bias", inner))
    if normed:
        weights.append(vector("mamba.norms", rank + 2 * state))
    recurrent = StateTensor(name="ssm", elements=inner * state, bytes_per_element=state_element_bytes(fields))
    return Part(weights=tuple(weights), caches=(_state(recurrent, inner * (kernel - 1)),), width=4 * inner)


def mamba2(
    fields: ConfigFields,
    hidden: int,
    *,
    inner: int,
    heads: int,
    state: int,
    groups: int,
    kernel: int,
    conv_bias: bool,
    bias: bool,
    normed: bool = True,
) -> Part:
    """Mamba-2, arXiv 2405.21060: a state of `heads × head width × state`."""
    conv_width = inner + 2 * groups * state
    weights = [
        *linear("mamba.in_proj", inner + conv_width + heads, hidden, bias=bias),
        Weight(path="mamba.conv1d", outputs=conv_width, inputs=kernel, role="vector"),
        vector("mamba.dt_bias_A_D", heads, copies=3),
        *linear("mamba.out_proj", hidden, inner, bias=bias),
    ]
    if conv_bias:
        weights.append(vector("mamba.conv1d.bias", conv_width))
    if normed:
        weights.append(vector("mamba.norm", inner))
    recurrent = StateTensor(name="ssm", elements=inner * state, bytes_per_element=state_element_bytes(fields))
    return Part(
        weights=tuple(weights),
        caches=(_state(recurrent, conv_width * (kernel - 1)),),
        width=2 * inner + conv_width,
    )


def gated_delta_net(fields: ConfigFields, hidden: int) -> Part:
    """Gated DeltaNet (Qwen3-Next, Qwen3.5): a state of `value heads × key width × value width`."""
    key_heads, value_heads = fields.integer("linear_num_key_heads"), fields.integer("linear_num_value_heads")
    key_dim, value_dim = fields.integer("linear_key_head_dim"), fields.integer("linear_value_head_dim")
    kernel = fields.integer("linear_conv_kernel_dim")
    key_width, value_width = key_heads * key_dim, value_heads * value_dim
    conv_width = 2 * key_width + value_width
    weights = (
        *linear("linear_attn.in_proj_qkvz", conv_width + value_width, hidden),
        *linear("linear_attn.in_proj_ba", 2 * value_heads, hidden),
        Weight(path="linear_attn.conv1d", outputs=conv_width, inputs=kernel, role="vector"),
        vector("linear_attn.dt_bias_A_log", value_heads, copies=2),
        vector("linear_attn.norm", value_dim),
        *linear("linear_attn.out_proj", hidden, value_width),
    )
    recurrent = StateTensor(
        name="gdn",
        elements=value_heads * key_dim * value_dim,
        bytes_per_element=state_element_bytes(fields),
    )
    return Part(
        weights=weights,
        caches=(_state(recurrent, conv_width * (kernel - 1)),),
        width=2 * (conv_width + value_width),
    )


def kimi_delta_attention(hidden: int, *, heads: int, head_dim: int, kernel: int) -> Part:
    """KDA (Kimi Linear): a float32 state of `heads × width × width`, three convolutions."""
    width = heads * head_dim
    weights = (
        *(weight for name in ("q", "k", "v") for weight in linear(f"linear_attn.{name}_proj", width, hidden)),
        Weight(path="linear_attn.conv1d", outputs=3 * width, inputs=kernel, role="vector"),
        *linear("linear_attn.f_a_proj", head_dim, hidden, pieces=1),
        *linear("linear_attn.f_b_proj", width, head_dim),
        vector("linear_attn.dt_bias", width),
        vector("linear_attn.A_log", heads),
        *linear("linear_attn.b_proj", heads, hidden),
        *linear("linear_attn.g_a_proj", head_dim, hidden, pieces=1),
        *linear("linear_attn.g_b_proj", width, head_dim),
        vector("linear_attn.norm", head_dim),
        *linear("linear_attn.o_proj", hidden, width),
    )
    recurrent = StateTensor(name="kda", elements=heads * head_dim * head_dim, bytes_per_element=FLOAT32_BYTES)
    return Part(weights=weights, caches=(_state(recurrent, 3 * width * (kernel - 1)),), width=6 * width)


def lightning_attention(dims: Dimensions) -> Part:
    """Lightning attention (MiniMax-01): a state of `heads × width × width`, no convolution."""
    width = dims.heads * dims.head_dim
    weights = (
        *linear("self_attn.qkv_proj", 3 * width, dims.hidden),
        *linear("self_attn.output_gate", width, dims.hidden),
        vector("self_attn.norm", width),
        *linear("self_attn.out_proj", dims.hidden, width),
    )
    recurrent = StateTensor(name="lightning", elements=width * dims.head_dim)
    return Part(weights=weights, caches=(StateCache(tensors=(recurrent,)),), width=4 * width)


def short_convolution(fields: ConfigFields, hidden: int) -> Part:
    """Gated short convolution (LFM2): only the last inputs are kept."""
    kernel = fields.integer("conv_L_cache")
    bias = fields.flag("conv_bias")
    weights = [
        *linear("conv.in_proj", 3 * hidden, hidden, bias=bias),
        Weight(path="conv.conv", outputs=hidden, inputs=kernel, role="vector"),
        *linear("conv.out_proj", hidden, hidden, bias=bias),
    ]
    if bias:
        weights.append(vector("conv.conv.bias", hidden))
    return Part(weights=tuple(weights), caches=(_state(None, hidden * (kernel - 1)),), width=4 * hidden)


def gated_linear_recurrence(fields: ConfigFields, dims: Dimensions) -> Part:
    """RG-LRU (RecurrentGemma): a float32 vector as wide as the recurrence."""
    width = fields.optional_integer("lru_width") or dims.hidden
    kernel = fields.integer_or("conv1d_width", 4, least=1)
    block = width // dims.heads
    weights = (
        *linear("temporal_block.linear_y", width, dims.hidden, bias=True),
        *linear("temporal_block.linear_x", width, dims.hidden, bias=True),
        *linear("temporal_block.linear_out", dims.hidden, width, bias=True),
        Weight(path="temporal_block.conv_1d", outputs=width, inputs=kernel + 1, role="vector"),
        vector("temporal_block.rg_lru.recurrent_param", width),
        Weight(
            path="temporal_block.rg_lru.gates",
            outputs=2 * dims.heads * block,
            inputs=block + 1,
            role="vector",
        ),
    )
    recurrent = StateTensor(name="rg_lru", elements=width, bytes_per_element=FLOAT32_BYTES)
    return Part(weights=weights, caches=(_state(recurrent, width * (kernel - 1)),), width=3 * width)


def step_rank(fields: ConfigFields, name: str, hidden: int) -> int:
    """The rank of Mamba's step projection; `auto` is a sixteenth of the width."""
    return ceil_div(hidden, 16) if fields.raw(name) in (None, "auto") else fields.integer(name)
