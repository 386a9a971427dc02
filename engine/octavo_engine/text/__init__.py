"""Tokens to text and back: encoding, chat templates, incremental decoding, stop strings."""
