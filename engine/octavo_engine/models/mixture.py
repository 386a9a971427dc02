"""A mixture of experts: each token is computed by the few MLPs that the router chose for it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from octavo_engine.models.experts_config import ExpertGroups
from octavo_engine.models.layers import GatedMLP


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """Scores the experts for each token; the softmax is over all of them, in float32."""

    weight: Tensor  # [X, E], in float32 where scores are computed in it
    num_chosen: int
    normalized: bool
    scale: float
    groups: ExpertGroups | None

    def __call__(
        self, x: Tensor
    ) -> tuple[Tensor, Tensor]:  # [T, E] -> weights [T, C] float32, experts [T, C]
        """Choose the best experts of each token, and their shares."""
        scores = linear(x.to(self.weight.dtype), self.weight)
        scores = torch.softmax(scores, dim=-1, dtype=torch.float32)
        if self.groups is not None:
            scores = _within_best_groups(scores, self.groups)
        weights, experts = torch.topk(scores, self.num_chosen, dim=-1)
        if self.normalized:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return weights * self.scale, experts


@dataclass(frozen=True, slots=True, kw_only=True)
class SigmoidRouter:
    """Scores each expert for each token by itself."""

    weight: Tensor  # [X, E]
    num_chosen: int

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:  # [T, E] -> weights [T, C], experts [T, C]
        """Choose the best experts of each token, and how much each gets of it."""
        scores, experts = torch.topk(linear(x, self.weight), self.num_chosen, dim=-1)
        return torch.sigmoid(scores.to(torch.float32)).to(x.dtype), experts


def _within_best_groups(scores: Tensor, groups: ExpertGroups) -> Tensor:  # [T, X] -> [T, X]
    """Scores of zero outside of the groups that hold the best experts."""
    grouped = scores.view(scores.shape[0], groups.count, -1)
    best = grouped.amax(dim=-1).topk(groups.num_chosen, dim=-1).indices
    kept = torch.zeros(grouped.shape[:-1], dtype=torch.bool, device=scores.device).scatter_(1, best, True)
    return torch.where(kept.unsqueeze(-1), grouped, 0.0).view(scores.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """Takes the place of a layer's MLP."""

    router: Router | SigmoidRouter
    experts: tuple[GatedMLP, ...]
    shared: GatedMLP | None
    """Computes every token besides."""
    weighs_inputs: bool
    """A token is scaled by its weight before the expert computes it, not after."""

    def __call__(self, x: Tensor) -> Tensor:  # [T, E] -> [T, E]
        """Sort the (token, expert) pairs by expert, so that each expert computes its tokens at once.

        A token's sum is taken in the order of its experts' numbers, whatever else is in the batch.
        """
        weights, chosen = self.router(x)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        rows, weights = order // chosen.shape[1], weights.flatten()[order].unsqueeze(1)
        out = torch.zeros_like(x) if self.shared is None else self.shared(x)
        parts = zip(self.experts, torch.split(rows, counts), torch.split(weights, counts), strict=True)
        for expert, part, share in parts:
            if part.numel():
                out.index_add_(0, part, self._weighed(expert, x[part], share).to(out.dtype))
        return out

    def _weighed(self, expert: GatedMLP, x: Tensor, share: Tensor) -> Tensor:
        return expert(x * share) if self.weighs_inputs else expert(x) * share
