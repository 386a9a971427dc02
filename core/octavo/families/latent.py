"""Latent attention (MLA): one compressed vector per token in place of keys and values.

All heads read the same vector, so that tensor parallelism copies it to every device instead of
cutting it, and `num_key_value_heads` says nothing. DeepSeek's sparse attention keeps every latent
vector and adds the indexer's key: in FP8, with a 4-byte scale.
Source: DeepSeek-V2, arXiv 2405.04434; DeepSeek-V3.2-Exp; the model classes of `transformers`.
"""

from __future__ import annotations

from typing import Final

from octavo.config_fields import ConfigFields
from octavo.families.decoder import DecoderTraits, assemble, mlps_of
from octavo.families.feed_forward import ExpertTraits, dense, expert_weights
from octavo.families.parts import Part, linear, vector
from octavo.layers import LatentCache, Weight
from octavo.model_shape import Dimensions, ModelShape, read_dimensions

INDEXER_SCALE_BYTES: Final = 4
"""One float32 scale for each indexer key."""


def latent_attention(fields: ConfigFields, dims: Dimensions, *, indexed: bool | None = None) -> Part:
    """Down- and up-projections of queries and of the latent vector, and the indexer if there is one."""
    latent, rope = fields.integer("kv_lora_rank"), fields.integer("qk_rope_head_dim", least=0)
    nope, value_dim = fields.integer("qk_nope_head_dim", least=0), fields.integer("v_head_dim")
    bias = fields.flag("attention_bias")
    weights = [
        *_query_weights(fields, dims, nope + rope, bias),
        *linear("self_attn.kv_a_proj_with_mqa", latent + rope, dims.hidden, bias=bias, pieces=1),
        vector("self_attn.kv_a_layernorm", latent),
        *linear("self_attn.kv_b_proj", dims.heads * (nope + value_dim), latent),
        *linear("self_attn.o_proj", dims.hidden, dims.heads * value_dim, bias=bias),
    ]
    index_dim = fields.integer_or("index_head_dim", 0)
    if index_dim:
        indexer_weights = _indexer_weights(fields, dims, index_dim) if indexed is not False else []
        weights += indexer_weights
    cache = LatentCache(
        latent_dim=latent,
        rope_dim=rope,
        indexer_bytes=index_dim + INDEXER_SCALE_BYTES if index_dim and indexed is not False else 0,
    )
    return Part(weights=tuple(weights), caches=(cache,), width=2 * dims.heads * (nope + rope + value_dim))


def _query_weights(fields: ConfigFields, dims: Dimensions, head_dim: int, bias: bool) -> list[Weight]:
    rank = fields.optional_integer("q_lora_rank")
    if rank is None:
        return linear("self_attn.q_proj", dims.heads * head_dim, dims.hidden)
    return [
        *linear("self_attn.q_a_proj", rank, dims.hidden, bias=bias, pieces=1),
        vector("self_attn.q_a_layernorm", rank),
        *linear("self_attn.q_b_proj", dims.heads * head_dim, rank),
    ]


def _indexer_weights(fields: ConfigFields, dims: Dimensions, index_dim: int) -> list[Weight]:
    heads = fields.integer("index_n_heads")
    rank = fields.optional_integer("q_lora_rank") or dims.hidden
    return [
        *linear("self_attn.indexer.wq_b", heads * index_dim, rank, pieces=1),
        *linear("self_attn.indexer.wk", index_dim, dims.hidden, pieces=1),
        vector("self_attn.indexer.k_norm", index_dim, copies=2),
        *linear("self_attn.indexer.weights_proj", heads, dims.hidden, pieces=1),
    ]


def parse_latent(fields: ConfigFields, traits: DecoderTraits) -> ModelShape:
    """A model whose every layer has latent attention."""
    dims = _latent_dimensions(fields)
    mixers = [
        latent_attention(fields, dims, indexed=indexed)
        for indexed in _indexed_layers(fields, dims.num_layers)
    ]
    return assemble(fields, dims, traits, mixers, mlps_of(fields, dims, traits))


def _latent_dimensions(fields: ConfigFields) -> Dimensions:
    heads = fields.integer("num_attention_heads")
    return read_dimensions(fields, kv_heads=heads)


def _indexed_layers(fields: ConfigFields, num_layers: int) -> list[bool]:
    """GLM-5: a layer of kind `shared` uses the indexer of an earlier one."""
    kinds = fields.sequence("indexer_types")
    if not kinds or len(kinds) < num_layers:
        return [True] * num_layers
    return [kind != "shared" for kind in kinds[:num_layers]]


def parse_longcat(fields: ConfigFields) -> ModelShape:
    """LongCat: two attentions and two dense MLPs in each layer, around one mixture of experts."""
    dims = _latent_dimensions(fields)
    width = fields.integer("expert_ffn_hidden_size")
    count = fields.integer("n_routed_experts")
    rows = count + fields.integer_or("zero_expert_num", 0)
    mixer = latent_attention(fields, dims)
    dense_mlp = dense(dims.hidden, dims.intermediate)
    router = linear(
        "mlp.router.classifier", rows, dims.hidden, bias=fields.flag("router_bias"), role="router"
    )
    block = expert_weights(dims.hidden, width, count, ExpertTraits())
    mlp = Part(weights=(*router, *block, *dense_mlp.weights, *dense_mlp.weights), width=dense_mlp.width)
    twice = Part(weights=mixer.weights * 2, caches=mixer.caches * 2, width=mixer.width)
    traits = DecoderTraits(norms_per_layer=4)
    return assemble(fields, dims, traits, [twice] * dims.num_layers, [mlp] * dims.num_layers)
