"""What is counted for people and for Prometheus."""
