"""How much memory paging wastes, and how many sequences stay admitted, against contiguous reservation.

The engine's own scheduler runs under a real trace of request lengths. Nothing is computed: a fake
sampler ends each sequence where the trace says. So this measures memory management and nothing else.
"""
