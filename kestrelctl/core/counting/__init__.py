"""Counters for people and for Prometheus."""
