"""Consumption policies: what a task is charged of each asset of a worker, by expression."""
