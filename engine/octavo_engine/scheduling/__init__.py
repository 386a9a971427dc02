"""Which tokens of which sequences a step computes, and in which blocks: pure Python, no torch, no clock."""
