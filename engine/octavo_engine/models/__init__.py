"""Decoder-only transformers: one family, told apart by switches read from the model's configuration."""
