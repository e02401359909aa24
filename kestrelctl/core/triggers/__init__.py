"""Triggers: rules that do something when an expression over the pool is true."""
