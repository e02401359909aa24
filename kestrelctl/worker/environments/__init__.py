"""Drivers, which make, start and stop environments on this machine.

They run programs and wait for them, so they need a process of their own: a worker's process reaps
every child that it has, and ends those that it does not know.
"""
