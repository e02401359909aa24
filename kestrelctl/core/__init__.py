"""Decides. Pure: events in, effects out; no I/O, clock, thread or randomness."""
