"""Environments that are made when tasks need them: what is decided about them, without I/O."""
