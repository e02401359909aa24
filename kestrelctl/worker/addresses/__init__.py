"""Inputs that a worker reads at addresses: of its machine, of the web, of buckets."""
