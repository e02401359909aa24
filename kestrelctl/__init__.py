"""Kestrel: a pool for many short tasks on machines that come and go."""

__version__ = "0.1.0"
