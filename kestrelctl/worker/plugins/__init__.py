"""Plugins: what reads properties of this machine.

They run programs and wait for them, so they are for a process of their own: a worker's reaps every
child that it has.
"""
