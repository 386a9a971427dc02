"""Ways to choose the number of replicas: Octavo's planner, and what people use today."""
