"""Measurements that the documentation cites; each can be repeated with one command."""
