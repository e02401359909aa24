"""Drivers: what makes, starts and stops environments on this machine.

They run programs and wait for them, so they are for a process of their own: a worker's reaps every
child that it has, and ends those that it does not know.
"""
