"""Starts the programs of tasks and waits for them: the port, and what implements it."""
