"""The language model inside a checkpoint that takes images too: its configuration and its tensors.

Only text is served: such checkpoints get requests without images, for which the other parts compute
nothing. Their weights are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from torch import Tensor

from octavo.families.nested import text_part
from octavo_engine.models.weight_files import StoredTensor, WeightSource

WITH_TEXT_PART: Final = ("gemma3", "llama4", "mistral3")
"""Types whose text part computes for text alone what a plain text model does."""
PREFIXES: Final = {"language_model.": "", "model.language_model.": "model."}
"""Where its tensors lie, as published and as `transformers` holds them -> how plain models call them."""
OTHER_PARTS: Final = ("vision_tower.", "vision_model.", "multi_modal_projector.")


def has_text_part(config: Mapping[str, object]) -> bool:
    """Whether the language model is one part of several."""
    return config.get("model_type") in WITH_TEXT_PART


def text_config(config: Mapping[str, object]) -> Mapping[str, object]:
    """The configuration of the language model: the nested one, or the whole."""
    return (text_part(config) if has_text_part(config) else None) or config


class TextWeights:
    """The tensors of the language model under the names of plain ones."""

    def __init__(self, files: WeightSource) -> None:
        self._files = files
        self._stored_name = {
            plain: name for name in files.tensors if (plain := _plain_name(name)) is not None
        }
        self.tensors: dict[str, StoredTensor] = {
            plain: files.tensors[name] for plain, name in self._stored_name.items()
        }

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """One tensor; its shape must be the one that the configuration implies."""
        return self._files.read(self._stored_name.get(name, name), shape)


def _plain_name(name: str) -> str | None:
    """None: of another part.

    >>> _plain_name("language_model.model.norm.weight"), _plain_name("vision_tower.x")
    ('model.norm.weight', None)
    """
    if name.removeprefix("model.").startswith(OTHER_PARTS):
        return None
    for prefix, plain in PREFIXES.items():
        if name.startswith(prefix):
            return plain + name.removeprefix(prefix)
    return name
