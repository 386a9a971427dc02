"""Which parser reads which `model_type`, with the defaults of the family's configuration class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from octavo.config_fields import ConfigFields
from octavo.families import early, encoder_decoder, gemma, hybrid, listed, shared, single_kind
from octavo.families.decoder import LLAMA, DecoderTraits, parse_decoder
from octavo.families.feed_forward import ExpertTraits
from octavo.families.latent import parse_latent, parse_longcat
from octavo.families.traits import DENSE_TRAITS, MOE_TRAITS
from octavo.model_shape import ModelShape

Parser = Callable[[ConfigFields], ModelShape]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A parser, and the class whose defaults fill what a file omits."""

    parse: Parser
    defaults_of: str


def _decoders() -> dict[str, Family]:
    return {
        name: Family(parse=partial(parse_decoder, traits=traits), defaults_of=name)
        for name, traits in (*DENSE_TRAITS.items(), *MOE_TRAITS.items())
    }


_DEEPSEEK: Final = DecoderTraits(
    mlp_bias=False, experts=ExpertTraits(sparse_layers="after_dense", shared="count")
)

_OWN_PARSERS: Final[Mapping[str, Parser]] = {
    "falcon": early.parse_falcon,
    "gpt_bigcode": early.parse_gpt_bigcode,
    "opt": early.parse_opt,
    "mpt": early.parse_mpt,
    "gpt_neo": early.parse_gpt_neo,
    "qwen": early.parse_qwen1,
    "chatglm": early.parse_chatglm,
    "phi3small": early.parse_phi3small,
    "stablelm": early.parse_stablelm,
    "nanochat": early.parse_nanochat,
    "bitnet": early.parse_bitnet,
    "dbrx": early.parse_dbrx,
    "deepseek_v2": partial(parse_latent, traits=_DEEPSEEK),
    "deepseek_v3": partial(parse_latent, traits=_DEEPSEEK),
    "deepseek_v32": partial(parse_latent, traits=_DEEPSEEK),
    "glm4_moe_lite": partial(parse_latent, traits=_DEEPSEEK),
    "glm_moe_dsa": partial(parse_latent, traits=_DEEPSEEK),
    "mistral4": partial(parse_latent, traits=_DEEPSEEK),
    "sarvam_mla": partial(parse_latent, traits=_DEEPSEEK),
    "minicpm3": partial(parse_latent, traits=LLAMA),
    "youtu": partial(parse_latent, traits=LLAMA),
    "longcat_flash": parse_longcat,
    "qwen3_next": hybrid.parse_qwen3_next,
    "qwen3_5_text": hybrid.parse_qwen3_next,
    "qwen3_5_moe_text": hybrid.parse_qwen3_next,
    "jamba": hybrid.parse_jamba,
    "bamba": hybrid.parse_bamba,
    "granitemoehybrid": hybrid.parse_granite_hybrid,
    "falcon_h1": hybrid.parse_falcon_h1,
    "lfm2": hybrid.parse_lfm2,
    "lfm2_moe": hybrid.parse_lfm2_moe,
    "minimax": hybrid.parse_minimax,
    "recurrent_gemma": hybrid.parse_recurrent_gemma,
    "kimi_linear": hybrid.parse_kimi_linear,
    "nemotron_h": single_kind.parse_nemotron_h,
    "mamba": single_kind.parse_mamba,
    "falcon_mamba": single_kind.parse_mamba,
    "mamba2": single_kind.parse_mamba2,
    "zamba2": shared.parse_zamba2,
    "mimo_v2_flash": shared.parse_mimo,
    "hunyuan_v1_dense": partial(shared.parse_hunyuan, traits=DENSE_TRAITS["hunyuan_v1_dense"]),
    "hunyuan_v1_moe": partial(shared.parse_hunyuan, traits=MOE_TRAITS["hunyuan_v1_moe"]),
    "gemma3n_text": gemma.parse_gemma3n,
    "gemma4_text": gemma.parse_gemma4,
    "nemotron-nas": listed.parse_nemotron_nas,
    "deci": listed.parse_decilm,
    "openelm": listed.parse_openelm,
    "step3p5": listed.parse_step,
    "mllama_text_model": listed.parse_mllama,
    "whisper": encoder_decoder.parse_whisper,
    "bart": encoder_decoder.parse_bart,
    "t5": encoder_decoder.parse_t5,
    "mt5": encoder_decoder.parse_t5,
}

_LIKE: Final[Mapping[str, str]] = {
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_vl": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_audio": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
}
"""The same layers under a class of its own, with its own defaults."""

_SAME_AS: Final[Mapping[str, str]] = {
    "RefinedWebModel": "falcon",
    "RefinedWeb": "falcon",
    "phi-msft": "phi",
    "Yi": "llama",
    "kimi_k2": "deepseek_v3",
    "minimax_text_01": "minimax",
    "MiniMaxText01": "minimax",
    "minimax_m1": "minimax",
    "hunyuan": "hunyuan_v1_moe",
    "step3p7": "step3p5",
    "step3p7_text": "step3p5",
}
"""Other names of the same architecture."""


def _families() -> dict[str, Family]:
    own = {name: Family(parse=parse, defaults_of=name) for name, parse in _OWN_PARSERS.items()}
    families = _decoders() | own
    families |= {name: Family(parse=families[model].parse, defaults_of=name) for name, model in _LIKE.items()}
    return families | {alias: families[name] for alias, name in _SAME_AS.items()}


FAMILIES: Final[Mapping[str, Family]] = _families()

CLASSES_WITH_DEFAULTS: Final = frozenset(family.defaults_of for family in FAMILIES.values())

TYPE_OF_CLASS: Final[Mapping[str, str]] = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "Qwen3NextForCausalLM": "qwen3_next",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "Phi3ForCausalLM": "phi3",
    "PhiForCausalLM": "phi",
    "FalconForCausalLM": "falcon",
    "RWForCausalLM": "falcon",
    "GPT2LMHeadModel": "gpt2",
    "GPTNeoXForCausalLM": "gpt_neox",
    "GPTBigCodeForCausalLM": "gpt_bigcode",
    "Starcoder2ForCausalLM": "starcoder2",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "DeciLMForCausalLM": "deci",
    "ChatGLMModel": "chatglm",
    "Step3p7FlashForCausalLM": "step3p5",
}
"""For files that name a class but no type that is known."""

UNSUPPORTED_REASONS: Final[Mapping[str, str]] = {
    "deepseek_v4": (
        "compressed attention (a ratio for each layer) has no closed form that matches what engines print: "
        "their bytes per token change with the context"
    ),
    "bert": "an encoder: it generates nothing and keeps no KV cache",
    "roberta": "an encoder: it generates nothing and keeps no KV cache",
    "rwkv": "the engine's state layout of RWKV is not described",
}
"""Why a type that people may well ask for gets no answer."""
