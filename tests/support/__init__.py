"""What the tests and the demo stand on: the sample model and a model hub on this machine."""
