"""A world in which the production manager and workers run on simulated time.

`run(seed)` lets one small pool live through a bad day; `run(seed, settings)` any other.

The world runs the core, the manager's `Service`, listener and request dispatcher, the worker's
process and sessions, and the codec. It simulates the clock and the event loop (`loop`), the network
(`network`, `simulated_session`), disks (`store`, `simulated_spool`), commands
(`simulated_executor`, `truth`) and users. It compares what is said on the wire and what becomes
durable with what was promised (`audit`, `vigil`).

The same seed and settings tell the same story, in any process:

- There is one clock, and one heap of actions to come, in the order of moments and, within one
  moment, of asking. Every loop takes its turns from it; there are no threads.
- All chance comes from generators that are seeded with the seed and the name of a part of the
  world. No part draws from the generator of another.
- Shells take clock, chance and names from their constructors. They reach for no global ones.
- Nothing iterates over a set whose order depends on hashes or addresses. A killed process is closed
  at once, so that nothing is left to the garbage collector.
"""

from __future__ import annotations

from kestrel_worlds.settings import (
    WorldSettings,
    calm,
    crowded,
    large,
    shared,
    small,
    streaming,
)
from kestrel_worlds.world import run
from kestrel_worlds.world_report import WorldReport

__all__ = [
    "WorldReport",
    "WorldSettings",
    "calm",
    "crowded",
    "large",
    "run",
    "shared",
    "small",
    "streaming",
]
