"""Runs the model over the rows of one step."""

from __future__ import annotations

import torch
from torch import Tensor

from octavo_engine.execution.kv_cache import KVCache
from octavo_engine.kernels.reference import (
    AttentionPlan,
    build_attention_plan,
    paged_attention,
    write_rows,
)
from octavo_engine.models.decoder import Decoder
from octavo_engine.scheduling.batch_layout import BatchLayout


class ModelRunner:
    """A model and its KV cache."""

    def __init__(self, model: Decoder, cache: KVCache, *, device: torch.device) -> None:
        self._model = model
        self._cache = cache
        self._device = device
        self._dtype = model.embeddings.dtype

    @torch.inference_mode()
    def run(self, layout: BatchLayout) -> Tensor:  # [R, V] float32
        """Compute all rows, fill their slots, and give the scores of the rows that are sampled."""
        return self.logits(self.forward(layout)[layout.sample_rows])

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:  # [R, E] -> [R, V] float32
        """Scores of the token that follows each row."""
        return self._model.logits(hidden)

    @torch.inference_mode()
    def forward(self, layout: BatchLayout) -> Tensor:  # [T, E]
        """Compute all rows and fill their slots."""
        plans = [
            build_attention_plan(
                group,
                num_decodes=layout.num_decodes,
                block_size=self._cache.shape.block_size,
                dtype=self._dtype,
                device=self._device,
            )
            for group in layout.groups
        ]
        return self._model.forward(
            torch.tensor(layout.token_ids, device=self._device),
            torch.tensor(layout.positions, device=self._device),
            _Attention(self._model, self._cache, plans),
        )


class _Attention:
    """Attention of one step: knows for each layer the plan and the tensors."""

    __slots__ = ("_cache", "_plans", "_scale", "_softcap")

    def __init__(self, model: Decoder, cache: KVCache, plans: list[AttentionPlan]) -> None:
        self._cache = cache
        self._plans = plans
        self._scale = model.config.attention_scale
        self._softcap = model.config.attention_softcap

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor | None) -> Tensor:
        plan = self._plans[self._cache.group_of_layer[layer]]
        slot = self._cache.slot_of_layer[layer]
        keys, values = self._cache.keys[slot], self._cache.values[slot]
        write_rows(plan, key, keys)
        if value is not None:
            write_rows(plan, value, values)
        return paged_attention(plan, query, keys, values, scale=self._scale, softcap=self._softcap)
