"""What it costs the operator to read hundreds of engines."""
