"""`spec.engine`, `spec.accelerator` and `spec.resources`: how the engine runs, and on what."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from octavo.accelerators import ACCELERATORS
from octavo.engine_contract import API_KEY_VARIABLE, RESERVED_FLAGS
from octavo.errors import InvalidSpec
from octavo_operator.api.quantities import CPU_PATTERN, MEMORY_PATTERN
from octavo_operator.api.spec.base import ApiModel, cel, shortened, validated_by
from octavo_operator.api.spec.model import SecretReference

RESERVED_ENV: Final = ("HF_ENDPOINT", "HF_HOME", "HF_HUB_OFFLINE", "HOME")
"""Environment variables that the operator sets itself."""
IMAGE_PATTERN: Final = r"^([a-zA-Z0-9][a-zA-Z0-9._:/@-]*)?$"
ENV_NAME_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"

_FLAGS = ", ".join(f"'{flag}'" for flag in sorted(RESERVED_FLAGS))
_ENV = ", ".join(f"'{name}'" for name in RESERVED_ENV)
_FLAG_IS_SET: Final = (
    "spec.engine.args repeats a flag that the operator sets itself; use the field for it: spec.model, "
    "spec.engine or spec.routing"
)
_ENV_IS_SET: Final = f"spec.engine.env sets a variable of the operator's own: {', '.join(RESERVED_ENV)}"
_KEYS_TWICE: Final = (
    f"spec.engine.env sets {API_KEY_VARIABLE}, and spec.engine.apiKeySecretRef does too; remove it from env"
)


class KVCache(ApiModel):
    """The shape of the engine's paged KV cache."""

    dtype: Literal["Auto", "Float32", "BFloat16", "Float16"] = Field(
        default="Auto", description="Element type of cached keys and values. Auto: the model's own."
    )
    block_tokens: int = Field(
        default=16, ge=1, le=256, description="Token positions that one block of the cache holds."
    )
    for_sequences: int = Field(
        default=0,
        ge=0,
        le=4096,
        description="Full-length sequences to make room for when spec.resources.memory is empty. 0: four.",
    )
    oversize_policy: Literal["Reject", "ShrinkContext"] = Field(
        default="Reject",
        description="What becomes of a context that does not fit into memory. Reject: the object is refused "
        "with the numbers. ShrinkContext: maxModelLen is lowered to what fits, and a note says so.",
    )


class EnvVar(ApiModel):
    """One environment variable of the engine's container."""

    name: str = Field(pattern=ENV_NAME_PATTERN, min_length=1, max_length=128, description="Its name.")
    value: str = Field(default="", max_length=1024, description="Its literal value.")


class Engine(ApiModel):
    """How the engine runs."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        json_schema_extra=validated_by(
            cel(
                "!has(self.apiKeySecretRef) || !has(self.env) || "
                f"!self.env.exists(e, e.name == '{API_KEY_VARIABLE}')",
                _KEYS_TWICE,
            )
        ),
    )

    image: str = Field(
        default="",
        pattern=IMAGE_PATTERN,
        max_length=300,
        description="Engine image. Empty: the one the operator was installed with; an upgrade of the "
        "operator changes it for new revisions only.",
    )
    max_model_len: int | None = Field(
        default=None,
        ge=16,
        le=10_485_760,
        description="Longest sequence in tokens, prompt and answer together. Absent: the model's own limit.",
    )
    max_sequences: int = Field(
        default=0, ge=0, le=4096, description="Most sequences that run at once. 0: from the memory plan."
    )
    kv_cache: KVCache = Field(default_factory=KVCache, description="The shape of the engine's KV cache.")
    prefix_caching: bool = Field(
        default=True,
        description="Whether requests that begin alike share the blocks of their beginning.",
    )
    args: tuple[Annotated[str, Field(max_length=256)], ...] = Field(
        default=(),
        max_length=32,
        description="Further flags of `octavo-engine serve`. Flags that the operator sets are refused.",
        json_schema_extra=validated_by(cel(f"self.all(a, !(a.split('=')[0] in [{_FLAGS}]))", _FLAG_IS_SET)),
    )
    env: tuple[EnvVar, ...] = Field(
        default=(),
        max_length=32,
        description="Further environment variables of the engine, literal values only.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            **validated_by(cel(f"self.all(e, !(e.name in [{_ENV}]))", _ENV_IS_SET)),
        },
    )

    api_key_secret_ref: SecretReference | None = Field(
        default=None,
        description="Secret whose key `apiKeys` holds the keys that clients may send, separated by commas. "
        "Pods get it by name; the operator never reads it. Absent: anybody may ask.",
    )

    @field_validator("args")
    @classmethod
    def _must_be_free(cls, args: tuple[str, ...]) -> tuple[str, ...]:
        taken = [arg for arg in args if arg.split("=")[0] in RESERVED_FLAGS]
        if taken:
            raise InvalidSpec(f"{_FLAG_IS_SET}, got {shortened(taken)}")
        return args

    @field_validator("env")
    @classmethod
    def _must_be_ours_to_leave(cls, env: tuple[EnvVar, ...]) -> tuple[EnvVar, ...]:
        names = [one.name for one in env]
        taken = [name for name in names if name in RESERVED_ENV]
        if taken:
            raise InvalidSpec(f"{_ENV_IS_SET}, got {shortened(taken)}")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidSpec(f"spec.engine.env: each name may be there once, got {shortened(twice)} twice")
        return env

    @model_validator(mode="after")
    def _must_have_one_place_for_keys(self) -> Engine:
        if self.api_key_secret_ref is not None and any(one.name == API_KEY_VARIABLE for one in self.env):
            raise InvalidSpec(_KEYS_TWICE)
        return self


def _known_accelerator(name: str) -> str:
    if name not in ACCELERATORS:
        raise ValueError(f"must be one of {', '.join(sorted(ACCELERATORS))}")
    return name


class Accelerator(ApiModel):
    """Devices of each replica, which weights and KV cache are planned into."""

    type: Annotated[str, AfterValidator(_known_accelerator)] = Field(
        max_length=64,
        description="Kind of device, whose memory the plan divides.",
        json_schema_extra={"enum": [*sorted(ACCELERATORS)]},
    )
    count: int = Field(
        default=0,
        ge=0,
        le=64,
        description="Devices of each replica. 0: the fewest that hold the weights and the whole context.",
    )
    memory_percent: int = Field(
        default=90, ge=1, le=100, description="Share of a device's memory that the engine may use."
    )


def _quantity_text(value: object) -> object:
    """The schema also takes a plain number, as `cpu: 2`."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Resources(ApiModel):
    """What each replica gets from its node."""

    cpu: Annotated[str, BeforeValidator(_quantity_text)] = Field(
        default="2",
        pattern=CPU_PATTERN,
        max_length=16,
        description="CPU of each replica, request and limit alike; the engine starts as many threads.",
        json_schema_extra={"x-kubernetes-int-or-string": True},
    )
    memory: str = Field(
        default="",
        pattern=MEMORY_PATTERN,
        max_length=16,
        description="Memory limit of each replica, which weights and KV cache are planned into (on an "
        "accelerator: memory of the host). Empty: planned from the model.",
    )
