"""The dashboards of a pool, taken to a running Grafana server and back over its HTTP API."""
