"""Runs a step: KV tensors, the model's forward pass, sampling."""
