"""Worlds of several pools that flock: `run_flock(seed)` lets some live through a bad day.

Each pool has its own server, manager with the production flock service, workers, users and audit,
all as in a world of one pool. Servers talk over streams that break, stand still and are refused.
What pools run for each other is followed from the attempt at home to the commands in the lender.
"""

from __future__ import annotations

from kestrel_worlds.flock_worlds.flock_world_settings import FlockWorldSettings, small_flock
from kestrel_worlds.flock_worlds.world_of_pools import run_flock

__all__ = ["FlockWorldSettings", "run_flock", "small_flock"]
