"""The operator's only I/O: watching, the work queue, the API server, the model hub, the engines' metrics."""
