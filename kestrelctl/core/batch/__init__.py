"""Reads what a foreign batch system says of its queue and its nodes, without I/O."""
