"""Pure decisions: each takes what was observed (and `now`, if time matters) and returns a value with a reason."""
