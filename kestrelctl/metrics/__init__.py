"""What a manager and a worker process tell Prometheus."""
