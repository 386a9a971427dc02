"""The proof of the autoscaler: its planner against what people use today, in a simulator."""
