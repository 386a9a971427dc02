"""Pure decisions: from what was observed (and `now`, if time matters) to a value with a reason."""
