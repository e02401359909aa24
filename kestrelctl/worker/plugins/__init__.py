"""Plugins, which read properties of this machine.

They run programs and wait for them, so they need a process of their own: a worker's process reaps
every child that it has.
"""
