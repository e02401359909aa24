"""Explains what it means that the manager cannot write its store."""

from __future__ import annotations

import time


def store_trouble(error: str, since: float | None) -> str:
    """Says what a store that cannot be written means for the pool; empty if it can be written."""
    if not error:
        return ""
    begun = "" if since is None else time.strftime(" since %H:%M:%S", time.localtime(since))
    return f"FAILING{begun}: {error}; nothing is handed out"
