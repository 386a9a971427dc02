"""A mixture of experts: each token is computed by the few MLPs that the router chose for it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from octavo_engine.models.layers import GatedMLP


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """Scores the experts for each token; the softmax is over all of them, in float32."""

    weight: Tensor  # [X, E]
    num_chosen: int
    normalized: bool

    def __call__(
        self, x: Tensor
    ) -> tuple[Tensor, Tensor]:  # [T, E] -> weights [T, C] float32, experts [T, C]
        """Choose the best experts of each token, and their shares."""
        scores = torch.softmax(linear(x, self.weight), dim=-1, dtype=torch.float32)
        weights, experts = torch.topk(scores, self.num_chosen, dim=-1)
        return (weights / weights.sum(dim=-1, keepdim=True) if self.normalized else weights), experts


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """Takes the place of a layer's MLP."""

    router: Router
    experts: tuple[GatedMLP, ...]

    def __call__(self, x: Tensor) -> Tensor:  # [T, E] -> [T, E]
        """Sort the (token, expert) pairs by expert, so that each expert computes its tokens at once.

        A token's sum is taken in the order of its experts' numbers, whatever else is in the batch.
        """
        weights, chosen = self.router(x)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        rows, weights = order // chosen.shape[1], weights.flatten()[order].unsqueeze(1)
        out = torch.zeros_like(x)
        parts = zip(self.experts, torch.split(rows, counts), torch.split(weights, counts), strict=True)
        for expert, part, share in parts:
            if part.numel():
                out.index_add_(0, part, (expert(x[part]) * share).to(out.dtype))
        return out
