"""`spec.model`: which weights to serve, where they lie, and how their words become a commit."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from octavo_operator.api.spec.base import ApiModel, cel, validated_by

_SEGMENT: Final = "[A-Za-z0-9][A-Za-z0-9._-]*"
URI_PATTERN: Final = (
    rf"^(hf://{_SEGMENT}(/{_SEGMENT})?"
    rf"|pvc://[a-z0-9][-a-z0-9.]*(/{_SEGMENT})*"
    rf"|oci://{_SEGMENT}(:[0-9]+)?(/{_SEGMENT})+(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@sha256:[0-9a-f]{{64}})?)$"
)
REVISION_PATTERN: Final = r"^(sha256:[0-9a-f]{64}|[A-Za-z0-9][A-Za-z0-9._/-]*)$"
SERVED_NAME_PATTERN: Final = r"^([A-Za-z0-9][A-Za-z0-9._:/-]*)?$"
OBJECT_NAME_PATTERN: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"
COMMIT_PATTERN: Final = r"^[0-9a-f]{40}$"
DIGEST_PATTERN: Final = r"^sha256:[0-9a-f]{64}$"

RevisionPolicy = Literal["RequirePinned", "ResolveOnce", "Track"]


class SecretReference(ApiModel):
    """A Secret in the object's own namespace."""

    name: str = Field(
        pattern=OBJECT_NAME_PATTERN, min_length=1, max_length=253, description="Name of the Secret."
    )


class ModelCache(ApiModel):
    """Where fetched files are kept."""

    persistent_volume_claim: str = Field(
        default="",
        pattern=OBJECT_NAME_PATTERN,
        max_length=253,
        description="A claim that all replicas share; a commit is fetched into it once. Empty: each replica "
        "fetches into a volume of its own that ends with it.",
    )


class ModelSource(ApiModel):
    """Which weights to serve. The words are resolved once to a commit; same words, same weights."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        json_schema_extra=validated_by(
            cel(
                "self.revisionPolicy != 'RequirePinned' || (self.uri.startsWith('hf://') "
                f"? self.revision.matches('{COMMIT_PATTERN}') : self.revision.matches('{DIGEST_PATTERN}'))",
                "spec.model.revision must be pinned under revisionPolicy RequirePinned: a commit of 40 "
                "hexadecimal digits for hf://, sha256:<digest> for pvc:// and oci://; `octavo pin` prints it",
            ),
            cel(
                "self.revisionPolicy != 'Track' || self.uri.startsWith('hf://') || "
                f"self.revision.matches('{DIGEST_PATTERN}')",
                "spec.model.revisionPolicy Track follows a branch on the hub (hf://); use ResolveOnce and "
                "change spec.model.refreshToken to look at a volume or an image again",
            ),
        ),
    )

    uri: str = Field(
        pattern=URI_PATTERN,
        max_length=300,
        description="Where the model lies: hf://<organization>/<name> on the model hub, pvc://<claim>/<path> "
        "on a volume, oci://<registry>/<repository>[:<tag>] in an image.",
    )
    revision: str = Field(
        default="main",
        pattern=REVISION_PATTERN,
        min_length=1,
        max_length=200,
        description="Branch, tag or commit. A branch or tag is resolved once to a commit and stays there; "
        "a commit of 40 hexadecimal digits (hf://) or the sha256 digest of the files (pvc://, oci://) is "
        "the recommended form.",
    )
    revision_policy: RevisionPolicy = Field(
        default="ResolveOnce",
        description="RequirePinned: words that can move are refused. ResolveOnce: a branch or tag is "
        "resolved at the first sight of its words and then stays. Track: it is followed as it moves "
        "(hf:// only).",
    )
    refresh_token: str = Field(
        default="",
        max_length=100,
        description="Change it to any other text to resolve the same branch or tag again.",
    )
    served_name: str = Field(
        default="",
        pattern=SERVED_NAME_PATTERN,
        max_length=200,
        description="The model's name in requests and answers. Empty: the resource's own name.",
    )
    credentials_secret_ref: SecretReference | None = Field(
        default=None,
        description="Secret whose key `token` opens a gated or private repository. It is mounted by "
        "name; the operator never reads it.",
    )
    cache: ModelCache = Field(default_factory=ModelCache, description="Where fetched files are kept.")
