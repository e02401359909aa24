"""All that pools of a flock say to each other."""

from __future__ import annotations

from typing import TypeAlias

from kestrelctl.protocol.flock import LendingMessage
from kestrelctl.protocol.flock_overlay import OverlayMessage

FlockMessage: TypeAlias = OverlayMessage | LendingMessage
