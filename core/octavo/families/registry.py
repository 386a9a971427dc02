"""Which parser reads which `model_type`, with the defaults of the family's configuration class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from octavo.config_fields import ConfigFields
from octavo.families import early, hybrid
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
    "nemotron_h": hybrid.parse_nemotron_h,
    "mamba": hybrid.parse_mamba,
    "falcon_mamba": hybrid.parse_mamba,
    "mamba2": hybrid.parse_mamba2,
}

_SAME_AS: Final[Mapping[str, str]] = {
    "RefinedWebModel": "falcon",
    "RefinedWeb": "falcon",
    "phi-msft": "phi",
    "Yi": "llama",
    "kimi_k2": "deepseek_v3",
    "minimax_text_01": "minimax",
    "MiniMaxText01": "minimax",
    "qwen3_next_text": "qwen3_next",
}
"""Other names of the same architecture."""


def _families() -> dict[str, Family]:
    own = {name: Family(parse=parse, defaults_of=name) for name, parse in _OWN_PARSERS.items()}
    families = _decoders() | own
    return families | {alias: families[name] for alias, name in _SAME_AS.items()}


FAMILIES: Final[Mapping[str, Family]] = _families()

CLASSES_WITH_DEFAULTS: Final = frozenset(family.defaults_of for family in FAMILIES.values())
