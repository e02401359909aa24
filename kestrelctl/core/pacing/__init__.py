"""Pacing: decides when the next thing may or must be done."""
