"""An iteration-level simulator of replicas under load, to try scaling policies on before a cluster runs them.

Everything is deterministic: a workload is drawn from a seed, noise comes from a table of the same seed,
and no clock is read. The simulated engine is not the planner's model (see `engine_law`), so that a policy
which only fits its own assumptions fails here.
"""
