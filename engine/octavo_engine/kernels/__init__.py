"""Attention over a paged KV cache; `reference` is pure torch and the oracle of all others."""
