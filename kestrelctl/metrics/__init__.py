"""The metrics that a manager and a worker process show to Prometheus."""
