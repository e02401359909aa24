"""Sweeps over a pool, their reports and plots."""
