"""A world in which the core runs on simulated time.

`run(seed)` lets one small pool live through a bad day; `run(seed, settings)` any other. The same
seed and settings tell the same story.
"""

from __future__ import annotations

from kestrelctl.simulate.settings import Settings, large, small
from kestrelctl.simulate.world import Report, run

__all__ = ["Report", "Settings", "large", "run", "small"]
